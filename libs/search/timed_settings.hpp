// Lists settings that a recipe may leave open by `auto`, to be settled by the time that a step is predicted
// to take: batch.order, and the options that strategies name in their trait `timed`.
#pragma once

#include <string>
#include <vector>

#include "base/text.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

struct TimedSetting {
  std::string path;                 // path such as "strategy.0.update"
  std::string value;                // value in the recipe
  std::vector<std::string> values;  // values that `auto` may stand for, the usual one first
};

// Returns all such settings of a recipe, settled ones included.
std::vector<TimedSetting> timed_settings(const Recipe& recipe, PluginHost& plugins);
bool is_open(const TimedSetting& setting);

// Holds a recipe of which some settings that were open are settled.
struct RecipeVariant {
  Recipe recipe;
  std::vector<std::string> settled = {};  // settings as --set takes them: "strategy.0.update=host"

  void settle(const TimedSetting& setting, const std::string& value);
  std::string said() const { return join(settled, " and "); }
};
// Returns all ways to settle the recipe, the usual one first; the recipe alone if it leaves nothing open.
std::vector<RecipeVariant> variants_of(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
