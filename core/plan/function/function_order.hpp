// Decides in which order a function's ops run.
#pragma once

#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Returns the program's order, with two exceptions. The functions that frame a step exchange all they can at
// once, after all that they can compute before, since each handoff between queues takes time. Exchanges of
// pieces begin one op that reads across ranks earlier, and travel beside it.
std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind);

// Says whether the op reads parts of sequences that other ranks have (OpDef::across).
bool looks_across(const Program& program, Id op);

}  // namespace prun
