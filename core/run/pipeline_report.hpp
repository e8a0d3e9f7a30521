// What a plan says about its pipeline: the schedule as a timeline, and how much of a step is idle.
#pragma once

#include <string>

#include "base/json.hpp"
#include "plan/pipeline_order.hpp"
#include "run/assembly.hpp"

namespace prun {

// The share of a step that a schedule leaves idle, by the closed form known for it.
struct KnownBubble {
  const char* formula = "";
  double share = 0;
};

// With passes of one unit (a whole backward: two) and free transfers. Nothing for a schedule without a closed
// form, or with too few microbatches for it.
std::optional<KnownBubble> known_bubble(const std::string& schedule, const ScheduleShape& shape);

// The idle share of a step, all ranks together, in the same units.
double bubble_of(const PipelineOrder& order);

// Empty where there is no pipeline.
std::string pipeline_text(const Assembly& assembly);

// Member "pipeline", null where there is none.
void write_pipeline(JsonWriter& json, const Assembly& assembly);

}  // namespace prun
