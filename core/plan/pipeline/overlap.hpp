// Cuts one step out of several in a row: how a rank runs passes while steps overlap.
#pragma once

#include <string>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

// Returns how many steps in a row the schedule is asked for.
std::int32_t steps_in_a_row(Delay delay, const ScheduleShape& shape);

// Cuts a step, from the order of one `step` and that of a `row` of so many. Throws bad_input where a step in
// the row has its passes in another order than alone, where two steps in a row differ or run into a third
// one's, and where a microbatch is still at work when that of the same number comes in a step later.
Overlap cut_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

// Does the same for steps of one microbatch, of which as many are at work as there are stages: each rank goes
// through one forward and the backward of the step that its stage is that many updates behind. Throws where
// another step's backward stands there.
Overlap cut_stages_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

}  // namespace prun
