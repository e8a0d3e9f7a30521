// From a strategy's request for a pipeline to its layout: which stages there are, and in which order ranks
// run them.
#pragma once

#include <functional>
#include <optional>

#include "plan/pipeline/stages.hpp"
#include "program/optimizers.hpp"

namespace prun {

// What a schedule says: the order of all ranks' calls, and whether they run weight gradients apart.
struct ScheduleAnswer {
  PipelineOrder order;
  bool split = false;
};
using AskSchedule = std::function<ScheduleAnswer(const std::string& schedule, const ScheduleShape& shape)>;

// What a schedule is asked about.
ScheduleShape pipeline_shape(const Program& program, const PipelineRequest& asked, std::int64_t microbatches);

// Asks the schedule, cuts the chain, and makes the program fit: weight gradients apart where the schedule
// runs them apart, parameters of two ranks as two copies whose gradients are summed. Nothing where no
// strategy asked, or the axis has one rank. Before placement.
std::optional<PipelineLayout> lay_out_pipeline(Program& program, const AskSchedule& ask,
                                               const Optimizers& optimizers, std::int64_t microbatches);

// Refuses state kept in parts where a pipeline cannot do with it. After phase `state`.
void check_parts(const Program& program, const PipelineLayout& layout);

// Only the last stage has a loss, and every stage the gradients of its own layers: their sums, and whatever
// else stages add to or take the largest of, in front of what reads them (the clip factor). After placement,
// which has summed them over the other axes.
void sum_over_stages(Program& program, AxisId axis);

}  // namespace prun
