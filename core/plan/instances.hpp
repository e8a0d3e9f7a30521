// Lists the repetitions of segments that a rank holds, in the order in which a microbatch passes them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Returns all repetitions of all segments of the model.
Numbered<Instance> chain_of(const Program& program);

// Fills plan.instances and plan.chunks. Returns the first instance of each segment, or -1 if this rank has
// none.
std::vector<std::int32_t> make_instances(const Program& program, const Work& work, Plan& plan);

// Returns those instances of the chain that a rank holds, without receive stubs.
std::vector<std::int32_t> held_instances(const Plan& plan);

}  // namespace prun
