// Lists the layers that a rank holds, in the order in which a microbatch passes them. Example: stage 1 of 2
// of a GPT with four layers holds a receive stub (for layer 1), layers 2 and 3, and the head.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Returns all layers of the model.
Numbered<Instance> chain_of(const Program& program);

// Fills plan.instances and plan.chunks. Returns the first instance of each segment; -1: this rank has none.
std::vector<std::int32_t> make_instances(const Program& program, const Work& work, Plan& plan);

// Returns those instances of the chain that a rank holds, without receive stubs.
std::vector<std::int32_t> held_instances(const Plan& plan);

}  // namespace prun
