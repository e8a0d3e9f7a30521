// Reports what a plan says about its pipeline: the schedule as a timeline, and how much of a step is idle.
#pragma once

#include <string>

#include "base/json.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns an empty text where there is no pipeline.
std::string pipeline_text(const Assembly& assembly);

// Writes the member "pipeline", null where there is none.
void write_pipeline(JsonWriter& json, const Assembly& assembly);

}  // namespace prun
