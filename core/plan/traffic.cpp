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
  const auto place_of = [&](const PlannedOperand& operand) {
    return plan.layout.ranges[static_cast<std::size_t>(operand.address.range)].place;
  };
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!step.kernel || !program.op(step.op).def->copies) continue;
      const MemoryPlace from = place_of(step.operands.front()), to = place_of(step.operands.back());
      const std::int64_t bytes = step.operands.front().address.bytes;
      if (from == own && to != own) moved.to_host += bytes;
      if (to == own && from != own) moved.to_device += bytes;
      if (from.space == Space::disk) moved.from_disk += bytes;
      if (to.space == Space::disk) moved.to_disk += bytes;
    }
  return moved;
}

}  // namespace prun
