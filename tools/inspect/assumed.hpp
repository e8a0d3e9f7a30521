// Reports what a plan takes for granted of a machine that is not this one, and whether ranks fit together
// there.
#pragma once

#include <string>

#include "base/json.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns lines that begin with "assumed"; none where the plan is this machine's and all was found here.
std::string assumed_text(const Assembly& assembly);
// Writes the member "assumed", which is null in the same case.
void write_assumed(JsonWriter& json, const Assembly& assembly);
// Returns a line, or its sentence alone, or writes the member "crowded_host", if ranks of a host together
// need more than it has.
std::string crowded_host_text(const Assembly& assembly);
std::string crowded_host_note(const Assembly& assembly);
void write_crowded_host(JsonWriter& json, const Assembly& assembly);

}  // namespace prun
