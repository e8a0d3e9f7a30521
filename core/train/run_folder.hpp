// Where a run writes.
#pragma once

#include <filesystem>

#include "recipe/recipe.hpp"

namespace prun {

// run.out, or runs/NAME.
std::filesystem::path run_folder(const Recipe& recipe);

void make_folder(const std::filesystem::path& folder);

}  // namespace prun
