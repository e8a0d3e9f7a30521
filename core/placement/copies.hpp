// Copies values between the memory that stores them and the memory that an op computes in. Fetched
// parameters, offloaded gradients and offloaded activations share it. Example: from drives to the device a
// value takes two copies: disk to pinned memory, pinned memory to the device.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Returns true if a value (not none) is stored outside the memory of the device that computes with it.
bool is_elsewhere(const Program& program, Id id);

// Returns the common place of all members, and clears it.
MemoryPlace place_taken(Program& program, const std::vector<Id>& members);

// Returns a text for error messages, such as "'block.attention.qkv.weight'".
std::string described(const Program& program, Id id);

// Adds a copy to a function, before op `before` or at the end. Copies from or to a disk pass through pinned
// memory.
void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before = none);

}  // namespace prun
