#include "plan/traffic.hpp"

namespace prun {

std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members) {
  const std::int64_t bytes = exchange.count * size_of(exchange.dtype);
  const bool counts_a_part = exchange.kind == CommKind::all_gather ||
                             exchange.kind == CommKind::reduce_scatter ||
                             exchange.kind == CommKind::all_to_all;
  return counts_a_part ? bytes * members : bytes;
}

MovedBytes moved_bytes(const Program& program, const Plan& plan) {
  constexpr MemoryPlace own{0, Space::device};
  const auto is_own = [&](const PlannedOperand& operand) {
    return plan.layout.ranges[static_cast<std::size_t>(operand.address.range)].place == own;
  };
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!step.kernel || !program.op(step.op).def->copies) continue;
      const bool from = is_own(step.operands.front()), to = is_own(step.operands.back());
      if (from && !to) moved.to_host += step.operands.front().address.bytes;
      if (to && !from) moved.to_device += step.operands.back().address.bytes;
    }
  return moved;
}

}  // namespace prun
