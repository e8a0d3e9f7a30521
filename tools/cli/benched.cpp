#include "cli/benched.hpp"

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

// Parses a text such as "none keep:device way:late" or, without a name, "stage:1".
BenchedSetting setting_of(std::string_view text) {
  BenchedSetting setting;
  for (const std::string_view word : split(text, ' ')) {
    const std::size_t colon = word.find(':');
    if (colon != std::string_view::npos)
      setting.values.emplace_back(word.substr(0, colon), word.substr(colon + 1));
    else if (!word.empty())
      setting.name = word;
  }
  return setting;
}

}  // namespace

std::vector<std::string> BenchedSettings::names() const {
  std::vector<std::string> names;
  for (const BenchedSetting& setting : list) names.push_back(setting.name);
  return names;
}

BenchedSettings benched_settings(const PluginNote& strategy) {
  BenchedSettings settings{"setting", {}};
  for (const std::string_view text : split(trait_of(strategy, "bench"), ',')) {
    BenchedSetting setting = setting_of(text);
    if (setting.values.empty()) continue;
    if (setting.name.empty()) {
      settings.name = setting.values.front().first;
      setting.name = setting.values.front().second;
    }
    settings.list.push_back(std::move(setting));
  }
  return settings;
}

std::vector<PluginNote> benched_strategies(std::span<const SearchPlace> places) {
  std::vector<PluginNote> notes = usable_notes(places, "strategy");
  std::erase_if(notes, [](const PluginNote& note) { return trait_of(note, "bench").empty(); });
  return notes;
}

}  // namespace prun
