// For schedules whose steps overlap (trait `delay`): takes one step out of the order of several in a row, so
// that the same period of calls can repeat. Example: `2bw` with 4 ranks: rank 0's period begins with its
// first forward of a step and contains the last backwards of the step before.
#pragma once

#include <string>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

// Returns how many steps the schedule is asked for.
std::int32_t steps_in_a_row(Delay delay, const ScheduleShape& shape);

// `step`: the order of one step; `row`: of several. Throws bad_input if a step's passes have another order in
// the row than alone, if two steps in the row differ or run into a third, or if a microbatch is in flight
// when that of the same number begins a step later.
Overlap cut_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

// Does the same for steps of one microbatch, as many in flight as stages: each rank runs one forward, and one
// backward of an earlier step. Throws if another step's backward stands there.
Overlap cut_stages_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

}  // namespace prun
