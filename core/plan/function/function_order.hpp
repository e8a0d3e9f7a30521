// In which order a function's ops run.
#pragma once

#include <vector>

#include "program/step_program.hpp"

namespace prun {

// The program's, with two exceptions. What frames a step exchanges all it can at once, behind all that it can
// compute before: each way between queues takes time. And exchanges of pieces begin one op that looks across
// ranks ahead, beside which they travel.
std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind);

// It says whether the op looks at parts of sequences that other ranks have (OpDef::across).
bool looks_across(const Program& program, Id op);

}  // namespace prun
