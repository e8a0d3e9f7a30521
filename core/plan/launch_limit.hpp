// Limits how large a step may be: planning takes time and memory with each kernel that it launches.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// A step may launch so many kernels, in all stages of a pipeline together: they take about twenty seconds of
// planning, and 1.5 GiB.
inline constexpr std::int64_t most_launches = 8'000'000;

// Returns how many kernels a step launches, or `most_launches` + 1 if they are more.
std::int64_t launches_of(const Program& program, std::int64_t microbatches);

// Throws bad_input, which names the bound, if a step launches more.
void check_launches(const Program& program, std::int64_t microbatches);

}  // namespace prun
