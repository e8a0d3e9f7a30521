// Calls for what forward saves elsewhere: it leaves as forward goes on, and returns ahead of its backward.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "plan/order/call_list.hpp"
#include "plan/order/pass_calls.hpp"
#include "plan/order/slots.hpp"
#include "plan/work.hpp"

namespace prun {

class SavedCalls {
 public:
  SavedCalls(const Work& work, const Plan& plan, Slots& slots, CallList& calls)
      : work_(work), plan_(plan), slots_(slots), calls_(calls) {}

  // Is called after an instance's forward, where it has something to offload.
  void put_away(std::int32_t instance, std::int32_t microbatch);
  // Before the first of a backward pass's calls that are left: what that reads and, unless it has the same
  // memory, what the next instance's does, which may be another pass's.
  void bring_back_for(std::size_t pass, std::span<const PassCall> left);

 private:
  using Saved = std::pair<std::int32_t, std::int32_t>;  // of an instance, for a microbatch

  void bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken);
  std::int64_t bring_back(std::int32_t instance, const ScheduleCall& call);

  const Work& work_;
  const Plan& plan_;
  Slots& slots_;
  CallList& calls_;
  std::set<Saved> away_;
  std::array<std::optional<Saved>, 2> returned_;  // by buffer
};

}  // namespace prun
