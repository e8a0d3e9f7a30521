#include "plan/proof/check_effects.hpp"

#include <utility>

#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

bool may_speculate(const Program& program, Id segment) {
  return segment != program.step_segment() && !program.segment(segment).ops(FunctionKind::speculate).empty();
}

// An instance that may be updated speculatively has either `update`, or both `speculate` and `settle`.
void check_updated_once(const Program& program, const Plan& plan) {
  std::set<std::pair<std::int32_t, FunctionKind>> called;
  for (const Call& call : plan.calls) {
    const PlannedFunction& function = plan.functions[call.function];
    called.emplace(call.instance, function.kind);
    for (const InstancePiece& of : function.joins) called.emplace(of.instance, function.kind);
  }
  for (std::int32_t i = 0; std::cmp_less(i, plan.instances.size()); ++i) {
    const Instance& instance = plan.instances[i];
    if (instance.is_stub() || !may_speculate(program, instance.segment)) continue;
    const auto has = [&](FunctionKind kind) { return called.contains({i, kind}); };
    if (has(FunctionKind::update) == has(FunctionKind::speculate) ||
        has(FunctionKind::speculate) != has(FunctionKind::settle))
      fail_check("layer ", instance.layer, " of segment '", program.segment(instance.segment).name,
                 "' is not updated once, by `update` or by `speculate` and `settle`");
  }
}

void check_called(const Program& program, const PlannedFunction& function, std::int32_t number,
                  const CalledPieces& called) {
  if (is_optimizer(function.kind) && may_speculate(program, function.segment) &&
      !called.contains({number, 0}))
    return;
  std::int32_t covered = 0;
  for (std::size_t piece = 0; piece < function.pieces.size(); ++piece) {
    if (!called.contains({number, static_cast<std::int32_t>(piece)}))
      fail_check("function ", name_of(function.kind), " of segment '", program.segment(function.segment).name,
                 "' is never called");
    if (function.pieces[piece].first == covered) covered = function.pieces[piece].last;
  }
  if (std::cmp_not_equal(covered, function.steps.size()))
    fail_check("function ", name_of(function.kind), " has steps that no call runs");
}

// A joint function must have the ops of all functions that it joins.
void check_joined(const Plan& plan, const PlannedFunction& joint) {
  std::size_t at = 0;
  for (const InstancePiece& of : joint.joins) {
    const PlannedFunction& function = plan.functions[of.function];
    const Piece& piece = function.pieces[of.piece];
    for (std::int32_t s = piece.first; s < piece.last; ++s, ++at)
      if (at == joint.steps.size() || joint.steps[at].op != function.steps[s].op)
        fail_check("function ", name_of(joint.kind), " has lost ops of those that it joins");
  }
}

// Returns true if the op may be omitted: a sum that a write begins need not be cleared.
bool may_be_left_out(const Op& op) {
  return op.def->clears && (op.function == FunctionKind::zero || op.function == FunctionKind::clear);
}

void check_ops(const Program& program, const PlannedFunction& function) {
  std::set<Id> kept;
  for (const PlannedStep& step : function.steps) {
    if (step.op != none) kept.insert(step.op);
    kept.insert(step.also.begin(), step.also.end());
  }
  for (Id op : program.segment(function.segment).ops(function.kind))
    if (!kept.contains(op) && !may_be_left_out(program.op(op)) &&
        (function.delay < 0 || program.is_updated_with(op, function.delay)))
      fail_check("function ", name_of(function.kind), " has lost ops");
}

}  // namespace

void check_effects(const Program& program, const Plan& plan, const CalledPieces& called) {
  for (std::size_t f = 0; f < plan.functions.size(); ++f) {
    const PlannedFunction& function = plan.functions[f];
    check_called(program, function, static_cast<std::int32_t>(f), called);
    if (function.joins.empty())
      check_ops(program, function);
    else
      check_joined(plan, function);
  }
  check_updated_once(program, plan);
}

}  // namespace prun
