#include "plan/order/saved_calls.hpp"

namespace prun {

void SavedCalls::put_away(std::int32_t instance, std::int32_t microbatch) {
  if (plan_.find(FunctionKind::put_away, instance) < 0) return;
  calls_.add(FunctionKind::put_away, instance, microbatch);
  away_.insert({instance, microbatch});
  returned_[static_cast<std::size_t>(plan_.turn_of(instance, calls_.held().slot))] = {};
}

void SavedCalls::bring_back_for(std::size_t pass, std::span<const PassCall> left) {
  const std::int32_t now = left.front().instance;
  const std::int64_t turn = bring_back(now, work_.calls[pass]);
  for (const PassCall& next : left)
    if (next.instance != now) return bring_back_ahead(next.instance, work_.calls[pass], turn);
  if (pass + 1 == work_.calls.size() || work_.calls[pass + 1].pass == Pass::forward) return;
  const std::vector<PassCall> behind = functions_of(plan_, work_.calls[pass + 1]);
  if (!behind.empty()) bring_back_ahead(behind.front().instance, work_.calls[pass + 1], turn);
}

void SavedCalls::bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken) {
  if (!away_.contains({instance, call.microbatch})) return;
  const Slots::Taken held = calls_.held();
  calls_.hold(slots_.of(call));
  if (plan_.turn_of(instance, calls_.held().slot) != taken) bring_back(instance, call);
  calls_.hold(held);
}

// Returns which of the two buffers the value is in.
std::int64_t SavedCalls::bring_back(std::int32_t instance, const ScheduleCall& call) {
  const std::int64_t turn = plan_.turn_of(instance, calls_.held().slot);
  const Saved saved{instance, call.microbatch};
  std::optional<Saved>& there = returned_[static_cast<std::size_t>(turn)];
  if (away_.contains(saved) && there != saved) {
    calls_.add(FunctionKind::bring_back, instance, call.microbatch);
    there = saved;
  }
  return turn;
}

}  // namespace prun
