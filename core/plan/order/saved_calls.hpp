// Adds calls for what forward saves elsewhere: it leaves as forward goes on, and returns before its backward.
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

  // Offloads what an instance's forward has saved, if anything; it is called after that forward.
  void put_away(std::int32_t instance, std::int32_t microbatch);
  // Brings back, before the first of a backward pass's calls that are left, what that one reads and, unless
  // it has the same memory, what the next instance's does, which may be another pass's.
  void bring_back_for(std::size_t pass, std::span<const PassCall> left);

 private:
  using Saved = std::pair<std::int32_t, std::int32_t>;  // instance and microbatch

  void bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken);
  std::int64_t bring_back(std::int32_t instance, const ScheduleCall& call);

  const Work& work_;
  const Plan& plan_;
  Slots& slots_;
  CallList& calls_;
  std::set<Saved> away_;
  std::array<std::optional<Saved>, 2> returned_;  // returned values by buffer
};

}  // namespace prun
