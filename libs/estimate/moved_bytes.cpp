#include "estimate/moved_bytes.hpp"

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
  return plan.layout.ranges[operand.address.range].place;
}

}  // namespace

Direction direction_of(const Program& program, const Plan& plan, const PlannedStep& step) {
  constexpr MemoryPlace own{0, Space::device};
  if (!copies(program, step)) return Direction::stays;
  const bool from = place_of(plan, step.operands.front()) == own,
             to = place_of(plan, step.operands.back()) == own;
  return from == to ? Direction::stays : from ? Direction::to_host : Direction::to_device;
}

MovedBytes moved_bytes(const Program& program, const Plan& plan) {
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!copies(program, step)) continue;
      const std::int64_t bytes = step.operands.front().address.bytes;
      const Direction direction = direction_of(program, plan, step);
      if (direction == Direction::to_host) moved.to_host += bytes;
      if (direction == Direction::to_device) moved.to_device += bytes;
      if (place_of(plan, step.operands.front()).space == Space::disk) moved.from_disk += bytes;
      if (place_of(plan, step.operands.back()).space == Space::disk) moved.to_disk += bytes;
    }
  return moved;
}

std::int32_t link_of(const Program& program, const Plan& plan, const PlannedStep& step) {
  if (!copies(program, step)) return -1;
  const auto number = [](std::int32_t device, bool out) { return 2 * device + (out ? 1 : 0); };
  const MemoryPlace from = place_of(plan, step.operands.front()), to = place_of(plan, step.operands.back());
  if (from.space == Space::disk) return number(from.device, true);
  if (to.space == Space::disk) return number(to.device, false);
  const Direction direction = direction_of(program, plan, step);
  return direction == Direction::stays ? -1 : number(0, direction == Direction::to_host);
}

double host_bytes(const Program& program, const Plan& plan, const PlannedStep& step,
                  const Numbered<bool>& on_host) {
  const auto is_on_host = [&](std::int32_t device) { return on_host.at(device); };
  const auto lies_there = [&](const PlannedOperand& operand) {
    const MemoryPlace place = place_of(plan, operand);
    return place.space == Space::pinned || place.space == Space::host ||
           (place.space == Space::device && is_on_host(place.device));
  };
  if (copies(program, step)) {
    const PlannedOperand &from = step.operands.front(), &to = step.operands.back();
    const int sides = (lies_there(from) ? 1 : 0) + (lies_there(to) ? 1 : 0);
    return sides * from.address.bytes;
  }
  if (!step.kernel || step.device == 0 || !is_on_host(step.device)) return 0;
  const Op& op = program.op(step.op);
  return op.cost(program.local_shape(op)).bytes;
}

}  // namespace prun
