// Places gradients that lie elsewhere from when they arrive until their update in memory that instances
// reuse.
#include <algorithm>
#include <utility>

#include "plan/order/needed_together.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {

namespace {

// Holds places in the order of the calls.
struct StayOfGradients {
  std::int32_t instance = -1;
  std::ptrdiff_t arrives = 0, updated = 0;
};

// Returns the stays of instances that have any, in the order in which they begin: `reduce` brings
// gradients, and `update` is the last to read them.
std::vector<StayOfGradients> stays_of_gradients(const Plan& plan, const std::vector<std::int64_t>& bytes) {
  std::vector<StayOfGradients> all;
  for (std::size_t at = 0; at < plan.calls.size(); ++at) {
    const Call& call = plan.calls[at];
    const FunctionKind kind = plan.functions[call.function].kind;
    if (call.instance < 0 || bytes[static_cast<std::size_t>(call.instance)] == 0) continue;
    if (kind != FunctionKind::reduce && kind != FunctionKind::update) continue;
    auto known = std::find_if(all.begin(), all.end(),
                              [&](const StayOfGradients& one) { return one.instance == call.instance; });
    if (known == all.end()) known = all.insert(known, {call.instance, static_cast<std::ptrdiff_t>(at), 0});
    known->updated = static_cast<std::ptrdiff_t>(at);
  }
  return all;
}

}  // namespace

TimeSlots arrived_time_slots(const Plan& plan, std::vector<std::int64_t> bytes) {
  constexpr std::size_t ahead = 2;
  const std::vector<StayOfGradients> all = stays_of_gradients(plan, bytes);
  NeededTogether together(bytes);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t later = i + 1; later < all.size(); ++later)
      if (later - i <= ahead || all[later].arrives <= all[i].updated)
        together.add(all[i].instance, all[later].instance);
  Offsets offsets = assign_offsets(bytes, together.conflicts(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace prun
