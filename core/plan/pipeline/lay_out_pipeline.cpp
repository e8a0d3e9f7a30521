#include "plan/pipeline/lay_out_pipeline.hpp"

#include <set>

#include "plan/instances.hpp"
#include "plan/launch_limit.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

void check_axis(const Program& program, const PipelineRequest& asked) {
  const std::string& name = program.mesh().name(asked.axis);
  for (const Split& split : program.requests().splits)
    if (split.axis == asked.axis)
      throw_error(ErrorCode::bad_input, "axis '", name,
                  "' has the stages of a pipeline and is asked to split '", split.dim.view(),
                  "' too; give each strategy an axis of its own");
}

// Segments whose ops use a parameter, its own included.
std::set<Id> users_of(const Program& program, Id parameter) {
  std::set<Id> users{program.value(parameter).segment};
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (Id op : program.segment(segment).ops(FunctionKind::forward))
      for (Id operand : program.op(op).operands)
        if (operand == parameter) users.insert(segment);
  return users;
}

// Where the instances of a segment that does not repeat are.
std::int64_t holder_of(const PipelineLayout& layout, const std::vector<Instance>& chain, Id segment) {
  for (std::size_t i = 0; i < chain.size(); ++i)
    if (chain[i].segment == segment) return layout.holder(layout.stage_of(static_cast<std::int32_t>(i)));
  return -1;
}

// Whatever two ranks use, each of them keeps.
void untie_across_ranks(Program& program, const PipelineLayout& layout, OptimizerInterface& optimizer) {
  const std::vector<Instance> chain = chain_of(program);
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (Id parameter : program.parameters()) {
    const Id home = program.value(parameter).segment;
    const std::int64_t own = holder_of(layout, chain, home);
    int copies = 0;
    for (Id user : users_of(program, parameter)) {
      if (user == home) continue;
      if (program.segment(user).repeat > 1)
        throw_error(ErrorCode::unsupported, "parameter '", program.value(parameter).name, "' of segment '",
                    program.segment(home).name, "' is used in every layer of '", program.segment(user).name,
                    "', which a pipeline cannot spread over ranks");
      const std::int64_t other = holder_of(layout, chain, user);
      if (other == own) continue;
      untie(program, parameter, user, layout.axis, optimizer);
      pairs.insert({own, other});
      ++copies;
    }
    if (copies > 1 || pairs.size() > 1)
      throw_error(
          ErrorCode::unsupported, "parameter '", program.value(parameter).name,
          "' ties segments of a third rank of the pipeline; two may share parameters, untie the others");
  }
}

// The op of a step's function that a sum must be complete for; none: nobody reads it there.
Id first_reader(const Program& program, FunctionKind function, Id sum) {
  for (Id id : program.segment(program.step_segment()).ops(function)) {
    const Op& op = program.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] == sum && op.access(i) == Access::read) return id;
  }
  return none;
}

}  // namespace

std::optional<PipelineLayout> lay_out_pipeline(Program& program, const AskSchedule& ask,
                                               OptimizerInterface& optimizer, std::int64_t microbatches) {
  if (!program.requests().pipeline) return std::nullopt;
  const PipelineRequest asked = *program.requests().pipeline;
  const std::int64_t ranks = program.mesh().extent(asked.axis);
  if (ranks == 1) return std::nullopt;
  check_axis(program, asked);
  check_launches(program, microbatches);
  PipelineLayout layout;
  layout.axis = asked.axis;
  ScheduleAnswer answer = ask(asked.schedule, {static_cast<std::int32_t>(ranks),
                                               static_cast<std::int32_t>(microbatches), asked.chunks});
  layout.order = std::move(answer.order);
  layout.split = answer.split;
  const std::vector<double> costs = chain_costs(program);
  const std::int64_t stages = ranks * asked.chunks;
  layout.stages = asked.layers.empty()
                      ? cut_evenly(costs, stages)
                      : cut_as_told(asked.layers, static_cast<std::int64_t>(costs.size()), stages);
  untie_across_ranks(program, layout, optimizer);
  if (layout.split) split_backward(program);
  return layout;
}

void check_parts(const Program& program, const PipelineLayout& layout) {
  for (const PartsRequest& parts : program.requests().parts)
    if (std::find(parts.axes.begin(), parts.axes.end(), layout.axis) != parts.axes.end())
      throw_error(ErrorCode::bad_input, "axis '", program.mesh().name(layout.axis),
                  "' has the stages of a pipeline: its ranks have no state in common to keep in parts; name "
                  "the axis of strategy data");
}

void sum_over_stages(Program& program, AxisId axis) {
  const AttrValue attr = axis_attr(axis);
  const std::pair<const char*, FunctionKind> sums[] = {{"loss_sum", FunctionKind::finish},
                                                       {"grad_squares", FunctionKind::finish},
                                                       {"non_finite", FunctionKind::report}};
  for (const auto& [name, function] : sums) {
    const Id sum = program.runtime(name);
    program.add_op(program.step_segment(), function, Part::input, "all_reduce_update", {sum},
                   std::span(&attr, 1), first_reader(program, function, sum));
  }
}

}  // namespace prun
