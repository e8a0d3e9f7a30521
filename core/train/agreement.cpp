// First a fingerprint of everything goes around; only if those differ, what they were made of.
#include "train/agreement.hpp"

#include <algorithm>
#include <map>

#include "base/sha256.hpp"

namespace prun {
namespace {

using Settings = std::map<std::string, std::string>;

constexpr std::string_view device_prefix = "device.";
constexpr const char* same_everywhere =
    "start all ranks with the same recipe, the same --set and the same prun";

bool belongs_to_a_place(const RecipeSection& section, const std::string& key) {
  const std::string& name = section.name();
  if (name == "run") return key == "name" || key == "out" || key == "keep" || key == "hang_limit";
  return name == "device" || name == "observer" || name == "plugins";
}

// "key = value" lines. Ranks may have other devices, but none that gives other bits.
std::string settings_text(const Assembly& assembly) {
  std::string text;
  for (const RecipeSection& section : assembly.recipe().all_sections())
    for (const auto& entry : section.entries())
      if (entry.value && !belongs_to_a_place(section, entry.key))
        text += entry.path + " = " + recipe::to_toml(*entry.value) + "\n";
  if (const std::string_view arithmetic = assembly.device_info().arithmetic.view(); !arithmetic.empty())
    text += detail::concat(device_prefix, arithmetic, "\n");
  return text;
}

Settings read_settings(std::string_view text) {
  Settings settings;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find(" = ");
    if (equals != std::string_view::npos)
      settings[std::string(line.substr(0, equals))] = line.substr(equals + 3);
  }
  return settings;
}

// "optimizer.lr is 0.003 on the one, 0.001 on the other", and what to do about it.
std::string first_difference(const Settings& mine, const Settings& theirs) {
  const auto value = [](const Settings& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string("not there") : found->second;
  };
  Settings all = mine;
  all.insert(theirs.begin(), theirs.end());
  for (const auto& [key, ignored] : all)
    if (value(mine, key) != value(theirs, key))
      return detail::concat(
          ": ", key, " is ", value(mine, key), " on the one, ", value(theirs, key), " on the other; ",
          key.starts_with(device_prefix) ? "they would compute other bits: give all ranks the same " + key
                                         : same_everywhere);
  return detail::concat("; ", same_everywhere);
}

}  // namespace

void check_agreement(const Assembly& assembly, const Exchange& exchange) {
  const std::vector<int> all = assembly.mesh().ranks();
  const std::string settings = settings_text(assembly);
  const std::string mine = assembly.fingerprint() + sha256_hex(settings);
  const std::vector<std::string> prints = exchange("plan", all, mine);
  // Every rank sees the same prints, so all of them go on to the second exchange or none.
  const auto other = std::find_if(prints.begin(), prints.end(),
                                  [&](const std::string& print) { return print != prints.front(); });
  if (other == prints.end()) return;
  const std::vector<std::string> texts = exchange("recipe", all, settings);
  const auto rank = static_cast<std::size_t>(other - prints.begin());
  throw_error(ErrorCode::bad_input, "rank 0 and rank ", rank, " have different plans",
              first_difference(read_settings(texts.front()), read_settings(texts[rank])));
}

}  // namespace prun
