// Turns a pipeline request into a layout: divides the layers into stages, asks the schedule plugin for the
// order, and adapts the program. Example: GPT of 4 layers on `pp = 2`: stage 0 has embedding and layers 0 and
// 1, stage 1 layers 2 and 3 and the head. A tied table becomes two copies, whose gradients are summed between
// the two ranks.
#pragma once

#include <functional>
#include <optional>

#include "plan/pipeline/stages.hpp"
#include "program/optimizers.hpp"

namespace prun {

// The order of calls of all ranks, and whether weight gradients run separately.
struct ScheduleAnswer {
  PipelineOrder order;
  bool split = false;
};
using AskSchedule = std::function<ScheduleAnswer(const std::string& schedule, const ScheduleShape& shape)>;

// Returns what the schedule is asked about.
ScheduleShape pipeline_shape(const Program& program, const PipelineRequest& asked, std::int64_t microbatches);

// Asks the schedule, divides the layers, and adapts the program: separate functions for weight gradients if
// the schedule wants them, a copy of each parameter on two ranks. Returns nothing without a request, or on an
// axis of one rank. Runs before placement.
std::optional<PipelineLayout> lay_out_pipeline(Program& program, const AskSchedule& ask,
                                               const Optimizers& optimizers, std::int64_t microbatches);

// Refuses sharded state that a pipeline cannot handle. Runs after phase `state`.
void check_parts(const Program& program, const PipelineLayout& layout);

// Sums over stages what each has for its layers only (loss, gradient norms, counts), before ops that read the
// totals, such as the clip factor. Runs after placement, which has summed over the other axes.
void sum_over_stages(Program& program, AxisId axis);

}  // namespace prun
