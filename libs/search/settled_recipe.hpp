// Settles a recipe, so that it leaves nothing to `auto`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- settled recipe

struct SettledRecipe {
  Recipe recipe;
  std::vector<std::string> said;  // what was chosen, and why; nothing if the recipe leaves nothing open
};

// Settles a recipe that names its device: what it leaves open is settled as in the resumed run, and otherwise
// by the time that a step is predicted to take. `costs` is that of forecast().
SettledRecipe settle(const Recipe& recipe, PluginHost& plugins,
                     const std::optional<std::filesystem::path>& costs);

// ------------------------------------------------------------------- timed settings
// Lists settings that a recipe may leave open by `auto`, to be settled by the time that a step is predicted
// to take: batch.order, and the options that strategies name in their trait `timed`.

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

// ------------------------------------------------------------------- quickest
// Settles what a recipe leaves open by `auto`, by the time that a step is predicted to take.

struct Quickest {
  Recipe recipe;     // recipe with everything settled
  std::string said;  // the choice and the times in one line; empty if the recipe leaves nothing open
};

// Plans each way, and returns the quickest of those that are not refused; it returns the usual one if some
// cannot be predicted, and if all are refused, so that the next planning says why. `costs` is that of
// forecast().
Quickest choose_quickest(const Recipe& recipe, PluginHost& plugins,
                         const std::optional<std::filesystem::path>& costs = {});

// ------------------------------------------------------------------- resumed settings
// Keeps what a recipe leaves open as it was settled for the run that it goes on from: another order of
// microbatches may give other bits.

// Settles the recipe as the checkpoint that run.resume names, or the best in the folder that it names, was
// saved with; what that does not state stays open, and all does if the recipe, changed since, does not allow
// it.
RecipeVariant settled_as_before(const Recipe& recipe, PluginHost& plugins);

// ------------------------------------------------------------------- run length
// Computes how many steps a run has whose length is stated in epochs.

struct RunLength {
  Recipe
      recipe;  // recipe with the resulting run.steps, and no epochs: reading a checkpoint of it needs no data
  std::string said;  // nothing if the recipe gives no epochs
};

// Opens the data, whose samples must be counted. Epochs end a run if they take fewer steps than run.steps.
RunLength with_run_length(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
