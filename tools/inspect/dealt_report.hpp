// Reports what a plan says about ops that one rank runs for others: updates of whole tensors whose state is
// kept in parts.
#pragma once

#include <string>

#include "base/json.hpp"
#include "program/step_program.hpp"

namespace prun {

// Returns an empty text where there are no such ops.
std::string dealt_text(const Program& program);

// Writes the member "dealt": by name of the axis, what each of its ranks computes in a step.
void write_dealt(JsonWriter& json, const Program& program);

}  // namespace prun
