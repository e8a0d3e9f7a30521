// Turns a checked recipe into a program and a plan that fit: it decides which plugins take part, and in which
// order they work.
#pragma once

#include "train/assemble/assembly.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work, or the first thing a plugin refused;
// DoesNotFit if there is not enough memory. The plan is that of one rank. Unproven, it may be compared with
// others, but not run.
Assembly assemble_unproven(Recipe recipe, PluginHost& plugins);
Assembly assemble(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose);

}  // namespace prun
