// Turns a pipeline request into a layout: takes the stages as requested, asks the schedule plugin for the
// order, and adapts the program. Example: GPT of 4 layers on `pp = 2`: stage 0 has embedding and layers 0 and
// 1, stage 1 layers 2 and 3 and the head. A tied table becomes two copies, whose gradients are summed between
// the two ranks.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"
#include "program/optimizers.hpp"

namespace prun {

// ------------------------------------------------------------------- stages

// Instances [first, last).
struct Stage {
  std::int32_t first = 0, last = 0;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Takes the numbers of instances that the strategy requests. Throws bad_input if their number or sum is
// wrong.
std::vector<Stage> cut_as_requested(std::span<const std::int64_t> counts, std::int64_t instances,
                                    std::int64_t stages);

// How a program runs as a pipeline.
struct PipelineLayout {
  AxisId axis = 0;
  bool split = false;  // weight gradients are a separate function
  PipelineOrder order;
  Numbered<Stage> stages;

  // Returns the coordinate with that stage.
  std::int64_t holder(std::int32_t stage) const;
  std::int32_t stage_of(std::int32_t instance) const;
};

// Returns the work of the rank at that coordinate.
Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate);

// ------------------------------------------------------------------- lay out pipeline

// The order of calls of all ranks, and whether weight gradients run separately.
struct ScheduleAnswer {
  PipelineOrder order;
  bool split = false;
};
using AskSchedule = std::function<ScheduleAnswer(const std::string& schedule, const ScheduleShape& shape)>;

// Returns what the schedule is asked about.
ScheduleShape pipeline_shape(const Program& program, const PipelineRequest& asked, std::int64_t microbatches);

// Asks the schedule, checks the stages, and adapts the program: separate functions for weight gradients if
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
