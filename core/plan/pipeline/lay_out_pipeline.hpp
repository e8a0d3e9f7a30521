// Turns a strategy's request for a pipeline into its layout: which stages there are, and in which order ranks
// run them.
#pragma once

#include <functional>
#include <optional>

#include "plan/pipeline/stages.hpp"
#include "program/optimizers.hpp"

namespace prun {

// Holds a schedule's answer: the order of all ranks' calls, and whether they run weight gradients separately.
struct ScheduleAnswer {
  PipelineOrder order;
  bool split = false;
};
using AskSchedule = std::function<ScheduleAnswer(const std::string& schedule, const ScheduleShape& shape)>;

// Returns the shape that a schedule is asked about.
ScheduleShape pipeline_shape(const Program& program, const PipelineRequest& asked, std::int64_t microbatches);

// Asks the schedule, cuts the chain, and makes the program fit: weight gradients become separate where the
// schedule runs them separately, parameters of two ranks become two copies whose gradients are summed.
// Returns nothing where no strategy asked, or the axis has one rank. It comes before placement.
std::optional<PipelineLayout> lay_out_pipeline(Program& program, const AskSchedule& ask,
                                               const Optimizers& optimizers, std::int64_t microbatches);

// Refuses state kept in parts where a pipeline cannot handle it. It comes after phase `state`.
void check_parts(const Program& program, const PipelineLayout& layout);

// Sums over stages: only the last stage has a loss, and each has the gradients of its own layers. It sums
// these, and whatever else stages add to or take the largest of, before the ops that read them (the clip
// factor). It comes after placement, which has summed them over the other axes.
void sum_over_stages(Program& program, AxisId axis);

}  // namespace prun
