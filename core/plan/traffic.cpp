#include "plan/traffic.hpp"

namespace prun {

std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members) {
  const std::int64_t bytes = exchange.count * size_of(exchange.dtype);
  const bool counts_a_part = exchange.kind == CommKind::all_gather ||
                             exchange.kind == CommKind::reduce_scatter ||
                             exchange.kind == CommKind::all_to_all;
  return counts_a_part ? bytes * members : bytes;
}

namespace {

bool copies(const Program& program, const PlannedStep& step) {
  return step.kernel && program.op(step.op).def->copies;
}

MemoryPlace place_of(const Plan& plan, const PlannedOperand& operand) {
  return plan.layout.ranges[static_cast<std::size_t>(operand.address.range)].place;
}

}  // namespace

Way way_of(const Program& program, const Plan& plan, const PlannedStep& step) {
  constexpr MemoryPlace own{0, Space::device};
  if (!copies(program, step)) return Way::stays;
  const bool from = place_of(plan, step.operands.front()) == own,
             to = place_of(plan, step.operands.back()) == own;
  return from == to ? Way::stays : from ? Way::to_host : Way::to_device;
}

MovedBytes moved_bytes(const Program& program, const Plan& plan) {
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!copies(program, step)) continue;
      const std::int64_t bytes = step.operands.front().address.bytes;
      const Way way = way_of(program, plan, step);
      if (way == Way::to_host) moved.to_host += bytes;
      if (way == Way::to_device) moved.to_device += bytes;
      if (place_of(plan, step.operands.front()).space == Space::disk) moved.from_disk += bytes;
      if (place_of(plan, step.operands.back()).space == Space::disk) moved.to_disk += bytes;
    }
  return moved;
}

}  // namespace prun
