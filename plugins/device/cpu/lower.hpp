// What the CPU runs in one op instead of several.
#pragma once

#include "prun/program.hpp"

namespace prun::cpu {

void lower(ProgramRef program);

}  // namespace prun::cpu
