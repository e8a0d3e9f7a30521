// Opens a recipe as a command line names it, for commands that lay it out.
#pragma once

#include "cli/open_recipe.hpp"

namespace prun {

// Makes paths whole, so that a program that reads its checkpoint, from any folder, finds its plugins too.
Recipe with_whole_paths(const Recipe& recipe, const std::filesystem::path& file);

// Does as open_recipe(), but names its device and settles nothing else: it has `unsettled` alone.
Opened open_unsettled(const Arguments& arguments, const std::string& file);

}  // namespace prun
