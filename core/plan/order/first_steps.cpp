#include "plan/order/order.hpp"
#include "program/text_steps.hpp"

namespace prun {
namespace {

bool runs_once(const TextSteps& text, const PlannedStep& step) {
  if (step.op == none) return text.is_made_once(step.operands.front().value);
  return text.is_once(step.op);
}

bool may_run_once(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::send || kind == FunctionKind::receive;
}

std::vector<Piece> divided(const TextSteps& text, const PlannedFunction& function) {
  std::vector<Piece> pieces;
  for (Piece piece : function.pieces)
    for (std::int32_t at = piece.first; at < piece.last; ++at) {
      const bool meets =
          at > piece.first && runs_once(text, function.steps[at]) != runs_once(text, function.steps[at - 1]);
      if (at == piece.first || meets) pieces.push_back({at, at, piece.queue});
      pieces.back().last = at + 1;
    }
  return pieces;
}

}  // namespace

void divide_at_first_steps(const Program& program, Plan& plan) {
  if (!steps_by_positions(program)) return;
  const TextSteps text(program);
  for (PlannedFunction& function : plan.functions)
    if (may_run_once(function.kind)) function.pieces = divided(text, function);
}

void limit_to_first_steps(const Program& program, Plan& plan) {
  if (!steps_by_positions(program)) return;
  const TextSteps text(program);
  for (Call& call : plan.calls)
    if (may_run_once(plan.functions[call.function].kind) && runs_once(text, plan.steps(call).front()))
      call.to = 0;
}

}  // namespace prun
