#include "plan/proof/check_effects.hpp"

#include <utility>

#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

// Returns whether a step may do without calls of a function: an instance is updated once, or
// speculatively.
bool has_alternative(const Program& program, const PlannedFunction& function) {
  return is_optimizer(function.kind) &&
         !program.segment(function.segment).ops(FunctionKind::speculate).empty();
}

void check_called(const Program& program, const PlannedFunction& function, std::int32_t number,
                  const CalledPieces& called) {
  if (has_alternative(program, function) && !called.contains({number, 0})) return;
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
}

}  // namespace prun
