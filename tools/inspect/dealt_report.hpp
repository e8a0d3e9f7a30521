// What a plan says about ops that one rank does for others: updates of whole tensors whose state is kept in
// parts.
#pragma once

#include <string>

#include "base/json.hpp"
#include "program/step_program.hpp"

namespace prun {

// Returns an empty text where there are none.
std::string dealt_text(const Program& program);

// Writes the member "dealt": by name of the axis, what each of its ranks does a step.
void write_dealt(JsonWriter& json, const Program& program);

}  // namespace prun
