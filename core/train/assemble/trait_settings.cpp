#include "train/assemble/trait_settings.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {
namespace {

bool has_setting(const RecipeSection& section, const std::string& key, const std::string& value) {
  const recipe::Entry* const entry = section.find(key);
  const auto* const text = entry && entry->value ? std::get_if<std::string>(&*entry->value) : nullptr;
  return text && *text == value;
}

// Returns the strategy that splits this over an axis of several ranks, one that is named or any.
std::string strategy_that_splits(const Recipe& recipe, PluginHost& plugins, std::string_view what,
                                 const std::string& axis = "") {
  const Mesh mesh = mesh_of(recipe);
  for (const RecipeSection& other : recipe.strategies()) {
    if (!trait_lists(plugins.note("strategy", other.plugin()), "splits", what)) continue;
    for (const std::string& own : axes_named(other))
      if ((axis.empty() || own == axis) && mesh.find(own) != no_axis && mesh.extent(mesh.find(own)) > 1)
        return other.plugin();
  }
  return "";
}

// Says what is wrong with such a strategy, if anything is; `setting` is in the recipe's words.
std::string problem_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                               const std::string& setting) {
  const std::vector<std::string> axes = axes_named(section);
  if (axes.size() != 1)
    return "cannot use " + setting + " over several axes (" + join(axes, ", ") +
           "); name one over which the batch is split, or leave the setting out";
  const Mesh mesh = mesh_of(recipe);
  const AxisId axis = mesh.find(axes.front());
  if (axis == no_axis || mesh.extent(axis) == 1) return "";
  if (strategy_that_splits(recipe, plugins, "batch", axes.front()).empty())
    return "cannot use " + setting + " over axis '" + axes.front() +
           "': no strategy splits the batch over it; name an axis of strategy data, or leave the setting out";
  if (const std::string other = strategy_that_splits(recipe, plugins, "sequence"); !other.empty())
    return "cannot use " + setting + " with strategy '" + other +
           "', which splits sequences; leave one of the two out";
  return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_in(std::string_view trait) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const std::string_view item : split(trait, ',')) {
    const std::size_t colon = item.find(':');
    if (colon != std::string_view::npos)
      settings.emplace_back(trim(item.substr(0, colon)), trim(item.substr(colon + 1)));
  }
  return settings;
}

Recipe with_untrained_settings(const Recipe& recipe, PluginHost& plugins) {
  Recipe result = recipe;
  for (const RecipeSection& section : recipe.strategies())
    for (const auto& [key, value] :
         settings_in(trait_of(plugins.note("strategy", section.plugin()), "untrained")))
      if (!has_setting(section, key, value)) result = result.with(section.path() + "." + key, value);
  return result;
}

void check_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                      Diagnostics& problems) {
  const PluginNote& note = plugins.note("strategy", section.plugin());
  for (const auto& [key, value] : settings_in(trait_of(note, "over_batch"))) {
    if (!has_setting(section, key, value)) continue;
    const std::string path = section.path() + "." + key;
    const std::string problem =
        problem_over_batch(recipe, plugins, section, detail::concat(key, " = \"", value, "\""));
    if (!problem.empty()) problems.add(recipe.problem(path, problem));
  }
}

}  // namespace prun
