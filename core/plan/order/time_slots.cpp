#include "plan/order/time_slots.hpp"

#include <algorithm>
#include <utility>

#include "plan/order/needed_together.hpp"

namespace prun {

namespace {

TimeSlots time_slots_of(std::vector<std::int64_t> bytes, NeededTogether together) {
  Offsets offsets = assign_offsets(bytes, together.conflicts(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace

bool TimeSlots::overlap(std::int32_t a, std::int32_t b) const {
  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
  return offsets.of[x] < offsets.of[y] + bytes[y] && offsets.of[y] < offsets.of[x] + bytes[x];
}

Bundle made_here(const Program& program, const Plan& plan) {
  Bundle made;
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const auto instance = static_cast<std::int32_t>(i);
    const std::int32_t function = plan.find(FunctionKind::gather, instance);
    if (function < 0 || plan.instances[i].is_stub()) continue;
    const std::vector<PlannedStep>& steps = plan.functions[function].steps;
    const bool computes = std::all_of(steps.begin(), steps.end(), [&](const PlannedStep& step) {
      if (step.exchange || program.op(step.op).def->copies) return false;
      const Value& result = program.value(program.op(step.op).operands.back());
      return result.role == Role::fetched && result.bucket < 0;
    });
    if (computes) made.push_back(instance);
  }
  return made;
}

TimeSlots gathered_time_slots(const GatheredUses& uses, const Bundle& made_here,
                              std::vector<std::int64_t> bytes) {
  NeededTogether together(bytes);
  for (const std::int32_t made : made_here)
    for (std::size_t i = 0; i < bytes.size(); ++i) together.add(made, static_cast<std::int32_t>(i));
  for (std::size_t use = 0; use < uses.size(); ++use) {
    together.add(uses[use].instances, uses[use].instances);
    if (use > 0) together.add(uses[use - 1].instances, uses[use].instances);
  }
  return time_slots_of(std::move(bytes), std::move(together));
}

TimeSlots bucket_time_slots(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes) {
  NeededTogether together(bytes);
  for (std::size_t b = 0; b < reduced.size(); ++b) {
    together.add(reduced[b], reduced[b]);
    if (b > 0) together.add(reduced[b - 1], reduced[b]);
  }
  return time_slots_of(std::move(bytes), std::move(together));
}

}  // namespace prun
