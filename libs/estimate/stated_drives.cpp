#include "estimate/stated_drives.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

double of_all(const std::vector<double>& rates, std::size_t drives) {
  constexpr double giga = 1e9;
  return giga * static_cast<double>(drives) * *std::min_element(rates.begin(), rates.end());
}

// Returns nothing unless the recipe has both rates.
std::optional<DriveRates> stated_rates(const Recipe& recipe, const PluginNote& note) {
  const std::vector<std::string_view> keys = split(trait_of(note, "rates"), ',');
  const std::string table = detail::concat("tier.", note.name);
  if (keys.size() != 2 || !recipe.find(detail::concat(table, ".", trim(keys[0])))) return {};
  const RecipeSection section = recipe.section(table);
  const std::vector<double>&reads = section.numbers(trim(keys[0])), &writes = section.numbers(trim(keys[1]));
  const std::size_t drives = section.texts(trait_of(note, "tier")).size();
  if (reads.empty() || writes.empty() || drives == 0) return {};
  return DriveRates{of_all(reads, drives), of_all(writes, drives)};
}

}  // namespace

std::optional<DriveRates> stated_drives_of(const Assembly& assembly, PluginHost& plugins,
                                           std::size_t device) {
  if (device == 0) return {};
  const PluginNote& note =
      plugins.note("device", assembly.unlowered().requests().more_devices.at(device - 1));
  return trait_of(note, "rates").empty() ? std::nullopt : stated_rates(assembly.recipe(), note);
}

std::optional<CostTable> with_stated_drives(const CostTable& table, const Assembly& assembly,
                                            PluginHost& plugins) {
  std::optional<CostTable> with;
  for (std::size_t device = 1; device < assembly.device_infos().size(); ++device) {
    const std::optional<DriveRates> rates = stated_drives_of(assembly, plugins, device);
    const std::string name(assembly.device_infos()[device].name.view());
    if (!rates || table.stated_drives.count(name) != 0) continue;
    if (!with) with = table;
    with->stated_drives.emplace(name, *rates);
  }
  return with;
}

}  // namespace prun
