#include "train/loop/observers.hpp"

#include <algorithm>

#include "plugin/traits.hpp"

namespace prun {

std::string unnamed_log(const Recipe& recipe, PluginHost& plugins) {
  if (!recipe.flag("run.log")) return {};
  const std::vector<PluginNote> loggers = plugins.notes_with("observer", "log", "yes");
  const std::vector<RecipeSection> named = recipe.sections("observer");
  const bool is_named = std::any_of(named.begin(), named.end(), [&](const RecipeSection& section) {
    return std::any_of(loggers.begin(), loggers.end(),
                       [&](const PluginNote& logger) { return logger.name == section.plugin(); });
  });
  return is_named || loggers.empty() ? std::string() : loggers.front().name;
}

}  // namespace prun
