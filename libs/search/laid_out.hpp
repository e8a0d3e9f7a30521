// Chooses the layout of a recipe that leaves it to prun (run.layout = "auto").
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/identity.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- laid out

struct LaidOutRecipe {
  Recipe recipe;     // recipe that states its layout
  std::string said;  // what was chosen, and from what; empty if the recipe left nothing out
};

bool leaves_layout_open(const Recipe& recipe);
// Returns the ranks that the recipe is laid out for if they have not been started yet.
std::int64_t ranks_asked_for(const Recipe& recipe);

// Lays out a recipe that names its device: as the launcher of this rank has chosen, as the resumed run has it
// if that has as many ranks, and otherwise as the search finds quickest. `rank` is the one that
// this process is; if it is none, the ranks that it starts get the choice. `costs` is the table that was
// named.
LaidOutRecipe lay_out(const Recipe& recipe, PluginHost& plugins,
                      const std::optional<std::filesystem::path>& costs, const std::optional<Identity>& rank);

// ------------------------------------------------------------------- recipe text
// Writes a checked recipe as text again, in part.

// Returns the whole recipe but one of its sections ("mesh", "strategy.1"), defaults included; `comment` gives
// the comment after an entry.
std::string toml_without(const Recipe& recipe, std::string_view section,
                         const std::function<std::string(const recipe::Entry&)>& comment);

}  // namespace prun
