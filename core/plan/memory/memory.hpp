// Declares the passes of this room over a plan, in the order in which plan/make/make_plan.cpp runs them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/base_program.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------ homes

// Decides where values lie that outlive the function that writes them.
struct PlacedHomes {
  Homes around;                    // for values that lie side by side with others, the range of all of them
  std::vector<RegionBytes> sizes;  // listed by segment
};

// Fills plan.homes, and adds the ranges that they lie in. `first_instance`: of each segment. `base_program`:
// what the plan is made over; null: nothing. Throws an Error naming a value that cannot lie where it is to.
PlacedHomes place_homes(const Program& program, const Lowering& lowering, const BaseProgram* base_program,
                        std::span<const std::int32_t> first_instance, Plan& plan);

// Functions are planned as if parameters of all delays lay here; those that are older than any pass here
// reads have no home once they are.
void forget_older_versions(const Program& program, Plan& plan);

// ------------------------------------------------------------ transfers

// Plans functions that pass values from stage to stage, between two instances that different ranks hold.

// Adds the queue for the exchange with the rank that holds the other copy of a parameter, if there is one.
void add_tie_queue(const Program& program, const Work& work, Plan& plan);
// Plans transfers; each way between two stages has a queue of its own, so that nothing waits for what it does
// not need. It needs plan.chunks, plan.instances and plan.homes.
void plan_transfers(const Program& program, const Work& work, Plan& plan);

// ------------------------------------------------------------ last uses

// Finds which step is the last to use bytes that outlive its function: after it they are dead, and their next
// user waits for it.

// Marks sums of gradients. It needs plan.functions and plan.instances.
void mark_dead_sums(const Program& program, Plan& plan);
// Marks what a microbatch's forward keeps for its backward. It needs plan.functions.
void mark_dead_slots(const Program& program, Plan& plan);

// ------------------------------------------------------------ place regions

// Lays the regions of the arena out: what each instance has for itself, what lies by microbatch, and what
// instances have in turn.

// Holds what instances have in turn.
struct SharedInTime {
  const TimeSlots &gathered, &unreduced;
  const std::vector<Bundle>& reduced;
  bool far_ahead;  // see Lowering
};
// Fills plan.layout, whose ranges have their places. It needs plan.calls, plan.chunks and plan.functions.
// `base_program` is what the plan is made over; null: nothing.
void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const SharedInTime& in_turn, const BaseProgram* base_program, Plan& plan);

}  // namespace prun
