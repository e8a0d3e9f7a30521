#include "plan/memory/memory.hpp"

#include <map>

namespace prun {
namespace {

bool is_backward(FunctionKind kind) {
  return kind == FunctionKind::backward || kind == FunctionKind::backward_weight;
}

// Returns true if the value is a bucket's local gradients, or the shard of their sum.
bool hands_over(const Program& program, const Bucket& bucket, Id id) {
  const std::optional<ViewOf>& view = program.value(id).view;
  return id == bucket.all_gradients || (view && view->whole == bucket.all_gradients && view->is_part());
}

// Sums of a microbatch are dead once they are reduced.
void mark_dead_blocks(const Program& program, const Bucket& bucket, Plan& plan) {
  PlannedStep* last = nullptr;
  for (PlannedFunction& function : plan.functions)
    if (function.segment == bucket.segment && function.kind == FunctionKind::reduce)
      for (PlannedStep& step : function.steps)
        for (const PlannedOperand& operand : step.operands)
          if (operand.value != none && hands_over(program, bucket, operand.value)) last = &step;
  for (std::size_t m = 0; last && m < bucket.parameters.size(); ++m)
    last->dead_after.push_back(plan.home(program.value(bucket.parameters[m]).gradient));
}

// Values in buffers that layers reuse are dead after the copy that reads them.
void mark_dead_in_turn(const Program& program, Plan& plan) {
  for (PlannedFunction& function : plan.functions)
    for (PlannedStep& step : function.steps)
      if (function.kind == FunctionKind::reduce && step.kernel && program.op(step.op).def->copies &&
          program.value(step.operands.front().value).in_turn)
        step.dead_after.push_back(step.operands.front().address);
}

PlannedStep* first_of_step(Plan& plan) {
  for (PlannedFunction& function : plan.functions)
    if (function.kind == FunctionKind::begin) return &function.steps.front();
  return nullptr;
}

bool is_sum_of_step(const Program& program, Id id) {
  const Value& value = program.value(id);
  if (value.bucket < 0) return value.role == Role::gradient && !value.in_turn;
  const Bucket& bucket = program.bucket_of(value);
  return keeps_summed_parts(program, bucket) ? id == bucket.own_gradients : value.role == Role::gradient;
}

// Gradients of a step are dead when the next begins, since the host may read them in between; except those
// copied to another device for updates, for which the next step would have to wait.
void mark_dead_sums_of_step(const Program& program, Plan& plan) {
  PlannedStep* const begin = first_of_step(plan);
  if (!begin) return;
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const Instance& instance = plan.instances[i];
    const SegmentData& segment = program.segment(instance.segment);
    if (instance.is_stub() || segment.device_of(FunctionKind::update) != 0) continue;
    for (Id id : segment.values)
      if (const auto home = plan.homes.find(id); home != plan.homes.end() && is_sum_of_step(program, id)) {
        begin->dead_after.push_back(home->second);
        begin->dead_after.back().whose = Whose::fixed;
        begin->dead_after.back().instance = static_cast<std::int32_t>(i);
      }
  }
}

}  // namespace

void mark_dead_sums(const Program& program, Plan& plan) {
  for (const Bucket& bucket : program.buckets())
    if (keeps_summed_parts(program, bucket)) mark_dead_blocks(program, bucket, plan);
  mark_dead_in_turn(program, plan);
  mark_dead_sums_of_step(program, plan);
}

// A saved value is dead after its last reader in backward or backward_weight.
void mark_dead_slots(const Program& program, Plan& plan) {
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    std::map<Id, PlannedStep*> last;
    for (PlannedFunction& function : plan.functions)
      if (function.segment == segment && is_backward(function.kind))
        for (PlannedStep& step : function.steps)
          for (const PlannedOperand& operand : step.operands)
            if (operand.value != none && operand.address.region == Region::slot) last[operand.value] = &step;
    for (const auto& [value, step] : last) step->dead_after.push_back(plan.home(value));
  }
}

}  // namespace prun
