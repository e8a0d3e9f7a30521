#include "train/assemble/tiers.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the plugins of the tables [tier.NAME], in the order of the recipe. Some tables set the host's
// device.
std::vector<std::string> tables_of(const Recipe& recipe) {
  std::vector<std::string> names;
  for (const RecipeSection& section : recipe.all_sections())
    if (section.name() == "tier" && !section.plugin().empty()) names.push_back(section.plugin());
  return names;
}

// Asks the plugin only where its note does not say so: a tier may look for its drives, which another machine
// has.
bool is_tier(const Recipe& recipe, PluginHost& plugins, const std::string& name) {
  if (!trait_of(plugins.note("device", name), "tier").empty()) return true;
  const auto device = plugins.create<DeviceInterface>("device", name, recipe);
  DeviceInfo info;
  raise(device->info(&info));
  return info.tier;
}

// Names tiers that a refusal can list without running them: their notes say so, or the recipe has a table.
std::string named_tiers(const Recipe& recipe, PluginHost& plugins) {
  std::vector<std::string> names = tables_of(recipe);
  for (const PluginNote& note : usable_notes(plugins.places(), "device"))
    if (!trait_of(note, "tier").empty() && !has(names, note.name)) names.push_back(note.name);
  return names.empty() ? "" : "; there are " + join(names, ", ");
}

void check_tier(const Recipe& recipe, PluginHost& plugins, const std::string& name) {
  const std::vector<std::string> devices = plugin_names(plugins.places(), "device");
  if (!has(devices, name)) {
    const std::string near = did_you_mean(name, devices);
    throw_error(
        ErrorCode::bad_input, "there is no tier ", in_quotes(name),
        near.empty() ? "; a tier is named by its device plugin" + named_tiers(recipe, plugins) : near);
  }
  if (!is_tier(recipe, plugins, name))
    throw_error(ErrorCode::bad_input, "device plugin ", in_quotes(name),
                " computes, and a tier only keeps bytes", named_tiers(recipe, plugins));
}

}  // namespace

KnownTiers known_tiers(const Recipe& recipe, PluginHost& plugins) {
  return {[&](std::string_view name) { check_tier(recipe, plugins, std::string(name)); },
          [&] {
            std::vector<std::string> names = tables_of(recipe);
            std::erase_if(names, [&](const std::string& name) { return !is_tier(recipe, plugins, name); });
            return names;
          }};
}

void refuse_idle_tiers(const Assembly& assembly) {
  if (assembly.purpose() != Purpose::training) return;
  const Recipe& recipe = assembly.recipe();
  const Requests& asked = assembly.unlowered().requests();
  Diagnostics problems;
  for (const std::string& name : tables_of(recipe)) {
    const std::string table = "tier." + name;
    if (name == recipe.section("device").plugin())
      problems.add(recipe.problem(
          table, "[" + table + "] has no effect, since [device] is the same plugin; set it there"));
    else if (!has(asked.more_devices, name) && !(asked.tiers && has(*asked.tiers, name)))
      problems.add(recipe.problem(
          table, "nothing lies on the tier of [" + table +
                     "]; name it where something is to lie (strategy offload, such as optimizer = \"" + name +
                     "\"), or remove the table: on the command line, --set tier={} removes all of them"));
  }
  problems.throw_if_any();
}

}  // namespace prun
