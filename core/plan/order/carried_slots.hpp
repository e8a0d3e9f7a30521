// Assigns slots of carried values to microbatches.
#pragma once

#include <deque>
#include <map>
#include <span>

#include "plan/carried_spans.hpp"
#include "plan/plan.hpp"

namespace prun {

// A rank keeps what is carried once a microbatch, from its first pass through a chunk that uses any of it to
// its last, whichever chunks these are. Where some arrives from another rank there is one slot more: while
// the oldest microbatch is still at work, the next one can arrive.
class CarriedSlots {
 public:
  // Sets plan.carried_slots.
  CarriedSlots(Plan& plan, const Work& work, std::span<const CarriedSpan> spans);

  // Returns the slot of a call's microbatch, 0 if it has none; the next function is called once the call is
  // done. Both are called for each call of the work in order.
  std::int32_t of(const ScheduleCall& call);
  void done(const ScheduleCall& call);

 private:
  bool meets(const ScheduleCall& call) const { return meets_[call.chunk]; }
  std::int32_t alive_at_once(const Work& work) const;

  Numbered<bool> meets_;                       // whether a chunk meets a carried value, by chunk
  std::map<std::int32_t, std::int32_t> left_;  // passes that are still to come, by microbatch
  std::map<std::int32_t, std::int32_t> held_;
  std::deque<std::int32_t> free_;  // free slots, longest free first
};

}  // namespace prun
