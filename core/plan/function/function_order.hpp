// In which order a function's ops run.
#pragma once

#include <vector>

#include "program/step_program.hpp"

namespace prun {

// The program's but for what frames a step, which exchanges all it can at once, behind all that it can
// compute before: each way between queues takes time.
std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind);

}  // namespace prun
