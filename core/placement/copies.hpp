// Makes copies between where a value is stored and where it is used: fetches, leaving gradients and saved
// values share these.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Says whether a value lies outside the memory of the device that computes with it; `none` does not.
bool is_elsewhere(const Program& program, Id id);

// Returns the place that all members have, and takes it from them.
MemoryPlace place_taken(Program& program, const std::vector<Id>& members);

// Returns a text such as "'block.attention.qkv.weight'", for a refusal.
std::string described(const Program& program, Id id);

// Appends a copy to a function, or puts it before an op of it. A copy from or to a disk passes through pinned
// memory.
void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before = none);

}  // namespace prun
