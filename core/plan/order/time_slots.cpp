#include "plan/order/time_slots.hpp"

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

TimeSlots gathered_time_slots(const GatheredUses& uses, std::vector<std::int64_t> bytes) {
  NeededTogether together(bytes);
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
