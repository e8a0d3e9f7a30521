// A recipe whose layout is left to prun (run.layout = "auto"), with the one that was chosen.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"
#include "train/launch/identity.hpp"

namespace prun {

struct LaidOutRecipe {
  Recipe recipe;     // says its layout
  std::string said;  // what was chosen, and from what; nothing: the recipe left nothing out
};

bool leaves_layout_open(const Recipe& recipe);
// Ranks that it is laid out for where nobody has started them yet.
std::int64_t ranks_asked_for(const Recipe& recipe);

// Of a recipe that names its device: as the launcher of this rank has chosen, as the run that goes on has it
// where that has as many ranks, and else what the search of train/tune takes for the quickest. `rank`: that
// this process is; where it is none, those that it starts are told. `costs`: the table that was named.
LaidOutRecipe lay_out(const Recipe& recipe, PluginHost& plugins,
                      const std::optional<std::filesystem::path>& costs, const std::optional<Identity>& rank);

}  // namespace prun
