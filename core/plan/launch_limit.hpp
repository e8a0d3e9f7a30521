// Limits the kernels of a step, since planning takes time and memory for each. Example: 100 layers of 20 ops,
// forward and backward, are 4,000 kernels a microbatch, so 2,000 microbatches reach the limit.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// About 20 seconds of planning and 1.5 GiB, for all stages of a pipeline together.
inline constexpr std::int64_t most_launches = 8'000'000;

// Returns at most `most_launches` + 1.
std::int64_t launches_of(const Program& program, std::int64_t microbatches);

// Throws bad_input with the bound.
void check_launches(const Program& program, std::int64_t microbatches);

}  // namespace prun
