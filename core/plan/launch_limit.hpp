// Limits how large a step may be: planning takes time and memory with each kernel that it launches.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// A step may launch so many kernels, of all stages of a pipeline together: about twenty seconds of planning,
// and 1.5 GiB.
inline constexpr std::int64_t most_launches = 8'000'000;

// It returns how many kernels a step launches, and `most_launches` and one where they are more.
std::int64_t launches_of(const Program& program, std::int64_t microbatches);

// Throws bad_input, which names the bound, where a step launches more.
void check_launches(const Program& program, std::int64_t microbatches);

}  // namespace prun
