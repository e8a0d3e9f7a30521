// Ranks that read another recipe, or run another build, must not begin: they would train something else, or
// wait for each other for ever.
#pragma once

#include "execute/communicators.hpp"

namespace prun {

// Collective over all ranks. Throws bad_input on every rank, naming the first rank that differs and, where
// it is the recipe, the first key. What belongs to a place may differ: device (but for what gives other
// bits), observers, plugins, run.name, run.out, run.keep and run.hang_limit.
void check_agreement(const Assembly& assembly, const Exchange& exchange);

}  // namespace prun
