// Writes what a recipe is planned as, so that two versions of prun can be compared line by line.
#pragma once

#include <string>

#include "train/assemble/assembly.hpp"

namespace prun::test {

// Returns programs, with values numbered as they appear, and all plans of them: fingerprints, bytes by
// region, calls with what they wait for.
std::string planned_text(const Assembly& assembly);

}  // namespace prun::test
