// Assigns a slot of a chunk's memory to each microbatch. Example: 1F1B on stage 0 of 2: microbatches 0, 1, 2,
// 3 have slots 0, 1, 0, 1, since at most two are in flight.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Gives a microbatch a slot of its chunk from its forward to its last backward. Chunks of one rank that
// follow each other share slots, so that the later finds what the earlier has saved. Inputs from another
// stage have one slot more, used cyclically: the next can arrive while the oldest microbatch is still in use.
class Slots {
 public:
  // Sets the number of slots of each chunk of the plan.
  Slots(Plan& plan, const Work& work);

  struct Taken {
    std::int32_t slot = 0, stub = 0;
  };
  // Returns the slots of a call's microbatch; done() frees them after its last call. Call both for each call
  // of the work, in order.
  Taken of(const ScheduleCall& call);
  void done(const ScheduleCall& call);

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // chunk and microbatch

  std::int32_t root_of(std::int32_t chunk) const;
  Key key_of(const ScheduleCall& call) const { return {root_of(call.chunk), call.microbatch}; }
  void count_alive(const Work& work);
  void share_out_over_steps(Plan& plan, const Work& work);

  const Plan& plan_;
  std::map<Key, std::int32_t> left_;            // passes that are still to come
  std::map<std::int32_t, std::int32_t> alive_;  // most microbatches alive at once, by chunk
  std::map<std::int32_t, std::set<std::int32_t>> free_;
  std::map<std::int32_t, std::deque<std::int32_t>> free_stubs_;  // free slots, longest free first
  std::map<Key, Taken> held_;
  std::map<Key, Taken> fixed_;  // slots where steps overlap
};

}  // namespace prun
