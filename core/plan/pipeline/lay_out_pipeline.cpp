#include "plan/pipeline/lay_out_pipeline.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/narrow.hpp"
#include "ops/base_ops.hpp"
#include "plan/launch_limit.hpp"
#include "plan/work.hpp"
#include "program/passes.hpp"

namespace prun {

// ------------------------------------------------------------------- stages

std::vector<Stage> cut_as_requested(std::span<const std::int64_t> counts, std::int64_t instances,
                                    std::int64_t stages) {
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(counts.size()) != stages)
    throw_error(ErrorCode::bad_input, "layers lists ", counts.size(), " stages, there are ", stages,
                " (ranks x chunks); list one number for each");
  if (sum != instances || std::any_of(counts.begin(), counts.end(), [](auto n) { return n < 1; }))
    throw_error(ErrorCode::bad_input, "layers adds up to ", sum, ", the model has ", instances,
                " layers, embedding and head counted; give each stage at least one, and all layers in total");
  std::vector<Stage> cuts;
  std::int32_t at = 0;
  for (const std::int64_t n : counts) {
    cuts.push_back({at, at + static_cast<std::int32_t>(n)});
    at = cuts.back().last;
  }
  return cuts;
}

// ---------------------------------------------------------------- who does what

std::int64_t PipelineLayout::holder(std::int32_t stage) const {
  for (std::size_t rank = 0; rank < order.stages.size(); ++rank)
    for (const std::int32_t held : order.stages[rank])
      if (held == stage) return static_cast<std::int64_t>(rank);
  return -1;
}

std::int32_t PipelineLayout::stage_of(std::int32_t instance) const {
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (stages[s].first <= instance && instance < stages[s].last) return static_cast<std::int32_t>(s);
  throw_error(ErrorCode::internal, "instance ", instance, " is in no stage");
}

namespace {

// Returns the coordinate that holds the other copy of a tied parameter; -1: none.
std::int64_t other_holder(const Program& program, const PipelineLayout& layout, std::int64_t coordinate) {
  const std::vector<Instance> chain = chain_of(program);
  std::set<std::int64_t> holders;
  for (std::size_t i = 0; i < chain.size(); ++i)
    if (!program.segment(chain[i].segment).ops(FunctionKind::tie).empty())
      holders.insert(layout.holder(layout.stage_of(static_cast<std::int32_t>(i))));
  if (holders.erase(coordinate) == 0 || holders.empty()) return -1;
  return *holders.begin();
}

// Returns where the rank's last stage before that stage ends.
std::int32_t held_before(const PipelineLayout& layout, std::int64_t coordinate, std::int32_t stage) {
  std::int32_t end = 0;
  for (const std::int32_t held : layout.order.stages[static_cast<std::size_t>(coordinate)])
    if (held < stage) end = std::max(end, layout.stages[held].last);
  return end;
}

}  // namespace

Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate) {
  const auto rank = static_cast<std::size_t>(coordinate);
  Work work;
  work.axis = layout.axis;
  work.coordinate = coordinate;
  work.split = layout.split;
  work.calls = layout.order.calls[rank];
  if (layout.order.overlap) work.period = layout.order.overlap->periods[rank];
  work.tied_to = other_holder(program, layout, coordinate);
  const auto stages = narrow<std::int32_t>(layout.stages.size());
  for (const std::int32_t stage : layout.order.stages[rank]) {
    const Stage& held = layout.stages[stage];
    const std::int64_t next = stage + 1 < stages ? layout.holder(stage + 1) : -1;
    work.chunks.push_back({stage, held.first, held.last, stage > 0 ? layout.holder(stage - 1) : -1, next,
                           held_before(layout, coordinate, stage),
                           next < 0 ? 0 : held_before(layout, next, stage + 1)});
  }
  return work;
}

namespace {

// ------------------------------------------------------------------- lay out pipeline

void check_axis(const Program& program, const PipelineRequest& asked) {
  const std::string& name = program.mesh().name(asked.axis);
  for (const Split& split : program.requests().splits)
    if (split.axis == asked.axis)
      throw_error(ErrorCode::bad_input, "cannot split '", split.dim.view(), "' over axis '", name,
                  "': it holds the stages of a pipeline; give each strategy a separate axis");
}

// Returns the segments with ops that use a parameter, its own included.
std::set<Id> users_of(const Program& program, Id parameter) {
  std::set<Id> users{program.value(parameter).segment};
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (Id op : program.segment(segment).ops(FunctionKind::forward))
      for (Id operand : program.op(op).operands)
        if (operand == parameter) users.insert(segment);
  return users;
}

// Returns the rank with a segment that does not repeat.
std::int64_t holder_of(const PipelineLayout& layout, const std::vector<Instance>& chain, Id segment) {
  for (std::size_t i = 0; i < chain.size(); ++i)
    if (chain[i].segment == segment) return layout.holder(layout.stage_of(static_cast<std::int32_t>(i)));
  return -1;
}

// Gives each of two ranks that use a parameter a copy.
void untie_across_ranks(Program& program, const PipelineLayout& layout, const Optimizers& optimizers) {
  const std::vector<Instance> chain = chain_of(program);
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (Id parameter : program.parameters()) {
    const Id home = program.value(parameter).segment;
    const std::int64_t own = holder_of(layout, chain, home);
    int copies = 0;
    for (Id user : users_of(program, parameter)) {
      if (user == home) continue;
      if (program.segment(user).repeat > 1)
        throw_error(ErrorCode::unsupported, "cannot split '", program.segment(user).name,
                    "' into stages: each of its layers uses parameter '", program.value(parameter).name,
                    "' of segment '", program.segment(home).name, "'; leave the pipeline out");
      const std::int64_t other = holder_of(layout, chain, user);
      if (other == own) continue;
      untie(program, parameter, user, layout.axis, optimizers);
      pairs.insert({own, other});
      ++copies;
    }
    if (copies > 1 || pairs.size() > 1)
      throw_error(ErrorCode::unsupported, "cannot tie parameter '", program.value(parameter).name,
                  "' over three ranks of the pipeline: two may share it; untie the others");
  }
}

// Sums over stages what each computes for its layers.
class StageSums {
 public:
  StageSums(Program& program, AxisId axis) : program_(program), axis_(axis) {
    for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
      for (const std::vector<Id>& function : program.segment(segment).functions)
        for (const Id op : function) note(program.op(op));
    for (const FunctionKind function : {FunctionKind::finish, FunctionKind::report})
      for (const Id op : program.segment(program.step_segment()).ops(function)) follow(program.op(op));
  }

  // Adds a sum before the ops that need it complete, over the stages that add to it in that function.
  void add(Id sum, FunctionKind function) {
    const AttrValue attr = axis_attr(axis_);
    const char* const kind =
        largest_.count(sum) != 0 ? base_ops::all_reduce_max_update : base_ops::all_reduce_update;
    program_.add_op(program_.step_segment(), function, Part::input, kind, {sum}, std::span(&attr, 1),
                    first_use(function, sum));
    done_.insert(sum);
    check_twins(sum, function);
  }

  // Adds other sums if the step uses them. Strategies may still add to a tally.
  void add_others() {
    for (const Id sum : program_.runtimes()) {
      const bool of_stages = of_stages_.count(sum) != 0 || program_.value(sum).tally;
      if (!of_stages || done_.count(sum) != 0 || is_twin(sum)) continue;
      const bool late =
          first_use(FunctionKind::finish, sum) == none && first_use(FunctionKind::report, sum) != none;
      add(sum, late ? FunctionKind::report : FunctionKind::finish);
    }
  }

 private:
  void note(const Op& op) {
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const Id id = op.operands[i];
      if (id == none || op.access(i) != Access::update || program_.value(id).role != Role::runtime) continue;
      of_stages_.insert(id);
      if ((shape.monotone >> i & 1u) != 0) largest_.insert(id);
    }
  }

  // Returns the name without "@dp": placement keeps replicated contributions in twins, "sum@dp", which are
  // added to the sum.
  std::string_view sum_of(Id id) const {
    const std::string_view name = program_.value(id).name;
    return name.substr(0, name.find('@'));
  }
  bool is_twin(Id id) const { return sum_of(id) != program_.value(id).name; }

  // Returns true if the op adds a twin to its sum.
  bool adds_twin(const Op& op) const {
    const Id from = op.operands.front(), to = op.operands.back();
    return op.operands.size() == 2 && from != none && to != none && is_twin(from) &&
           op.access(1) == Access::update && program_.value(to).role == Role::runtime &&
           sum_of(from) == sum_of(to);
  }
  void follow(const Op& op) {
    if (adds_twin(op) && of_stages_.count(op.operands[0]) != 0) of_stages_.insert(op.operands[1]);
  }

  // Returns true if the op reads a complete sum.
  bool completes(const Op& op) const {
    return op.exchanges_in_place() || (adds_twin(op) && of_stages_.count(op.operands[0]) != 0);
  }

  // Refuses a twin that would mix what all stages count with what each counts for itself.
  void check_twins(Id sum, FunctionKind function) const {
    for (const Id id : program_.segment(program_.step_segment()).ops(function)) {
      const Op& op = program_.op(id);
      const Id to = op.operands.back();
      if (to == none || !is_twin(to) || of_stages_.count(to) == 0 || completes(op)) continue;
      if (op.access(op.operands.size() - 1) == Access::update && sum_of(to) == sum_of(sum))
        throw_error(
            ErrorCode::unsupported, "cannot add to '", program_.value(sum).name, "' by op '", op.kind(),
            "' in ", name_of(function),
            ": it adds what all stages know, and ops of stages add what their layers have; use two sums");
    }
  }

  Id first_use(FunctionKind function, Id sum) const {
    for (const Id id : program_.segment(program_.step_segment()).ops(function)) {
      const Op& op = program_.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] == sum && op.access(i) != Access::write && !completes(op)) return id;
    }
    return none;
  }

  Program& program_;
  const AxisId axis_;
  std::set<Id> of_stages_, largest_, done_;
};

}  // namespace

ScheduleShape pipeline_shape(const Program& program, const PipelineRequest& asked,
                             std::int64_t microbatches) {
  return {static_cast<std::int32_t>(program.mesh().extent(asked.axis)),
          static_cast<std::int32_t>(microbatches), asked.chunks};
}

std::optional<PipelineLayout> lay_out_pipeline(Program& program, const AskSchedule& ask,
                                               const Optimizers& optimizers, std::int64_t microbatches) {
  if (!program.requests().pipeline) return std::nullopt;
  const PipelineRequest asked = *program.requests().pipeline;
  const std::int64_t ranks = program.mesh().extent(asked.axis);
  if (ranks == 1) return std::nullopt;
  check_axis(program, asked);
  check_launches(program, microbatches);
  PipelineLayout layout;
  layout.axis = asked.axis;
  ScheduleAnswer answer = ask(asked.schedule, pipeline_shape(program, asked, microbatches));
  layout.order = std::move(answer.order);
  layout.split = answer.split;
  layout.stages = cut_as_requested(asked.layers, static_cast<std::int64_t>(chain_of(program).size()),
                                   ranks * asked.chunks);
  untie_across_ranks(program, layout, optimizers);
  if (layout.split) split_backward(program);
  return layout;
}

void check_parts(const Program& program, const PipelineLayout& layout) {
  if (const std::optional<ShardRequest>& shards = program.requests().shards)
    if (std::find(shards->axes.begin(), shards->axes.end(), layout.axis) != shards->axes.end())
      throw_error(ErrorCode::bad_input, "cannot shard state over axis '", program.mesh().name(layout.axis),
                  "': its ranks hold different stages of a pipeline; name the axis of strategy data");
}

void sum_over_stages(Program& program, AxisId axis) {
  StageSums sums(program, axis);
  sums.add(program.runtime("loss_sum"), FunctionKind::finish);
  sums.add(program.runtime("grad_squares"), FunctionKind::finish);
  sums.add(program.runtime("non_finite"), FunctionKind::report);
  sums.add_others();
}

}  // namespace prun
