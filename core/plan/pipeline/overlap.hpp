// One step cut out of several in a row: how a rank runs passes while steps overlap.
#pragma once

#include <string>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

inline constexpr std::int32_t steps_in_a_row = 4;

// `step`: the order of one step; `row`: that of so many. Throws bad_input where a step in the row has its
// passes in another order than alone, where two steps in a row differ or run into a third one's, and where a
// microbatch is still at work when that of the same number comes in a step later.
Overlap cut_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

}  // namespace prun
