// Adds calls that gather parameters kept in parts, one use ahead.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan/order/call_list.hpp"
#include "plan/order/pass_calls.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {

class GatherCalls {
 public:
  GatherCalls(const Plan& plan, const GatheredUses& uses, std::span<const Bundle> renewed,
              const TimeSlots& time_slots, CallList& calls)
      : uses_(uses), renewed_(renewed), time_slots_(time_slots), calls_(calls), touched_(plan) {}

  // Gathers what this call uses, and ahead of it what the next use does.
  void gather_for(const PassCall& call);

 private:
  void renew();
  void gather(Bundle bundle);
  void finish(Bundle bundle);

  const GatheredUses& uses_;
  const std::span<const Bundle> renewed_;
  const TimeSlots& time_slots_;
  CallList& calls_;
  const TouchedGathered touched_;
  std::size_t used_ = 0;           // number of uses before the one at hand
  std::int64_t calls_of_use_ = 0;  // calls of the one at hand
  std::set<std::int32_t> holds_;   // instances whose parameters are gathered
  std::set<std::int32_t> coming_;  // instances whose gathers are not finished
};

}  // namespace prun
