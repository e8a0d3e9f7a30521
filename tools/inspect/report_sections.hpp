// Writes the sections of the report on a plan that only some plans have: pipeline, offload, and what was
// assumed.
#pragma once

#include <string>

#include "base/json.hpp"
#include "estimate/forecast.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// ------------------------------------------------------------------- pipeline report
// Reports what a plan says about its pipeline: the schedule as a timeline, and how much of a step is idle.

// Returns an empty text where there is no pipeline.
std::string pipeline_text(const Assembly& assembly);

// Writes the member "pipeline", null where there is none.
void write_pipeline(JsonWriter& json, const Assembly& assembly);

// ------------------------------------------------------------------- offload report
// Reports what a rank's devices hand each other in a step, and how long the updates take that run outside the
// first device.

// Returns an empty text where a rank has one device.
std::string offload_text(const Assembly& assembly, const Forecast& forecast);
void write_offload(JsonWriter& json, const Assembly& assembly, const Forecast& forecast);

// ------------------------------------------------------------------- assumed
// Reports what a plan takes for granted of a machine that is not this one, and whether ranks fit together
// there.

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
