// How large a step may be: planning takes time with each kernel that it launches.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Kernels of a step, of all stages of a pipeline together: about ten seconds of planning.
inline constexpr std::int64_t most_launches = 3'000'000;

// Throws bad_input, which names the bound, where a step launches more.
void check_launches(const Program& program, std::int64_t microbatches);

}  // namespace prun
