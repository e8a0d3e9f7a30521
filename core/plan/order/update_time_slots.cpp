// Places the copies that updates need in memory that instances reuse. Example: while layer 3 is updated, the
// state of layer 2 arrives from a drive and that of layer 4 returns: three slots.
#include <algorithm>
#include <functional>
#include <utility>

#include "plan/order/needed_together.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {

namespace {

// Returns each instance that is updated, in the order of the calls.
std::vector<std::int32_t> updated_in_order(const Plan& plan) {
  std::vector<std::int32_t> order;
  Numbered<bool> known(plan.instances.size());
  for (const Call& call : plan.calls) {
    if (plan.functions[call.function].kind != FunctionKind::update || call.instance == 0 ||
        known[call.instance])
      continue;
    known[call.instance] = true;
    order.push_back(call.instance);
  }
  return order;
}

// Returns true if an instance's update computes in three pieces or more.
bool is_updated_in_pieces(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update = plan.functions[plan.find(FunctionKind::update, instance)];
  return std::count_if(update.pieces.begin(), update.pieces.end(),
                       [&](const Piece& piece) { return plan.queues[piece.queue].workers; }) >= 3;
}

bool comes_from_drives(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update = plan.functions[plan.find(FunctionKind::update, instance)];
  const auto is_there = [&](const PlannedOperand& operand) {
    return operand.value != none && plan.layout.ranges[operand.address.range].place.space == Space::disk;
  };
  return std::any_of(update.steps.begin(), update.steps.end(), [&](const PlannedStep& step) {
    return std::any_of(step.operands.begin(), step.operands.end(), is_there);
  });
}

// Returns how many bytes of other instances may be between two that have memory at the same time, beyond the
// next two: those of the largest instance if drives are used, otherwise 0.
std::int64_t window_of(const Plan& plan, std::span<const std::int32_t> order,
                       const Numbered<std::int64_t>& bytes) {
  const bool drives =
      std::any_of(order.begin(), order.end(), [&](std::int32_t i) { return comes_from_drives(plan, i); });
  std::int64_t window = 0;
  for (const std::int32_t i : order)
    if (drives) window = std::max(window, bytes[i]);
  return window;
}

}  // namespace

TimeSlots update_time_slots(const Plan& plan, Numbered<std::int64_t> bytes, bool far_ahead) {
  const std::vector<std::int32_t> order = updated_in_order(plan);
  std::vector<bool> pieces;
  for (const std::int32_t i : order) pieces.push_back(is_updated_in_pieces(plan, i));
  const bool far = far_ahead && std::none_of(pieces.begin(), pieces.end(), std::identity());
  const std::int64_t window = far ? window_of(plan, order, bytes) : 0;
  std::vector<std::size_t> need_memory;  // places in `order`
  for (std::size_t i = 0; i < order.size(); ++i)
    if (bytes[order[i]] > 0) need_memory.push_back(i);
  NeededTogether together(bytes);
  for (std::size_t p = 0; p < need_memory.size(); ++p) {
    const std::size_t i = need_memory[p];
    std::int64_t between = 0;
    for (std::size_t next = 1; next < need_memory.size(); ++next) {
      const std::size_t later = need_memory[(p + next) % need_memory.size()],
                        distance = (later + order.size() - i) % order.size();
      if ((later < i && window == 0) || (distance > 2 && between > window)) break;
      if (!pieces[i] || !pieces[later]) together.add(order[i], order[later]);
      between += bytes[order[later]];
    }
  }
  Offsets offsets = assign_offsets(bytes, together.conflicts(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace prun
