// Places what is held for updates in memory that instances reuse: offloaded gradients, from their arrival to
// their update, or state as of before `speculate`, until `settle`. Example: while layer 3 is updated, the
// gradients of layers 2 and 1 arrive; those of layer 0 reuse the memory of layer 3.
#include <algorithm>
#include <utility>

#include "plan/order/needed_together.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {

namespace {

// Is the range of calls in which an instance needs memory.
struct Stay {
  std::int32_t instance = -1;
  std::ptrdiff_t arrives = 0, updated = 0;
};

// Returns these ranges in the order in which they begin.
std::vector<Stay> stays_in_turn(const Plan& plan, const std::vector<std::int64_t>& bytes) {
  Numbered<bool> touches;
  for (const PlannedFunction& function : plan.functions) touches.push_back(touches_arrived(function));
  std::vector<Stay> all;
  for (std::size_t at = 0; at < plan.calls.size(); ++at) {
    const Call& call = plan.calls[at];
    if (!touches[call.function] || bytes[static_cast<std::size_t>(call.instance)] == 0) continue;
    auto known =
        std::find_if(all.begin(), all.end(), [&](const Stay& one) { return one.instance == call.instance; });
    if (known == all.end()) known = all.insert(known, {call.instance, static_cast<std::ptrdiff_t>(at), 0});
    known->updated = static_cast<std::ptrdiff_t>(at);
  }
  return all;
}

}  // namespace

bool touches_arrived(const PlannedFunction& function) {
  return std::any_of(function.steps.begin(), function.steps.end(), [](const PlannedStep& step) {
    return std::any_of(step.operands.begin(), step.operands.end(), [](const PlannedOperand& operand) {
      return operand.value != none && operand.address.region == Region::arrived;
    });
  });
}

TimeSlots arrived_time_slots(const Plan& plan, const std::vector<std::int64_t>& bytes) {
  constexpr std::size_t ahead = 2;
  const std::vector<Stay> all = stays_in_turn(plan, bytes);
  std::vector<std::int64_t> held(bytes.size());
  for (const Stay& stay : all)
    held[static_cast<std::size_t>(stay.instance)] = bytes[static_cast<std::size_t>(stay.instance)];
  NeededTogether together(held);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t later = i + 1; later < all.size(); ++later)
      if (later - i <= ahead || all[later].arrives <= all[i].updated)
        together.add(all[i].instance, all[later].instance);
  Offsets offsets = assign_offsets(held, together.conflicts(held.size()));
  return {std::move(held), std::move(offsets)};
}

}  // namespace prun
