// Opens a recipe as a command line names it, for commands that lay it out.
#pragma once

#include "cli/open_recipe.hpp"

namespace prun {

// What reads a checkpoint of it, from wherever, finds its plugins too.
Recipe with_whole_paths(const Recipe& recipe, const std::filesystem::path& file);

// As open_recipe(), naming its device and settling nothing else: its `unsettled` alone.
Opened open_unsettled(const Arguments& arguments, const std::string& file);

}  // namespace prun
