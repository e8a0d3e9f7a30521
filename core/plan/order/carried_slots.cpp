#include "plan/order/carried_slots.hpp"

#include <algorithm>

namespace prun {

CarriedSlots::CarriedSlots(Plan& plan, const Work& work, std::span<const CarriedSpan> spans) {
  bool arrives = false;
  for (const ChunkWork& chunk : work.chunks) {
    meets_.push_back(std::any_of(spans.begin(), spans.end(), [&](const CarriedSpan& span) {
      return span.meets(chunk.first, chunk.last);
    }));
    arrives |= std::any_of(spans.begin(), spans.end(),
                           [&](const CarriedSpan& span) { return span.arrives(work, chunk); });
  }
  for (const ScheduleCall& call : work.calls)
    if (meets(call)) ++left_[call.microbatch];
  plan.carried_slots = alive_at_once(work) + (arrives ? 1 : 0);
  for (std::int32_t slot = 0; slot < plan.carried_slots; ++slot) free_.push_back(slot);
}

std::int32_t CarriedSlots::alive_at_once(const Work& work) const {
  std::map<std::int32_t, std::int32_t> left = left_;
  std::int32_t now = 0, most = 0;
  for (const ScheduleCall& call : work.calls) {
    if (!meets(call)) continue;
    if (left[call.microbatch] == left_.at(call.microbatch)) most = std::max(most, ++now);
    if (--left[call.microbatch] == 0) --now;
  }
  return most;
}

std::int32_t CarriedSlots::of(const ScheduleCall& call) {
  if (!meets(call)) return 0;
  const auto [entry, fresh] = held_.try_emplace(call.microbatch, 0);
  if (fresh) {
    entry->second = free_.front();
    free_.pop_front();
  }
  return entry->second;
}

void CarriedSlots::done(const ScheduleCall& call) {
  if (!meets(call) || --left_.at(call.microbatch) > 0) return;
  const auto entry = held_.find(call.microbatch);
  free_.push_back(entry->second);
  held_.erase(entry);
}

}  // namespace prun
