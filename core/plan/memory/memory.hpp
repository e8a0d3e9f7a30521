// Passes of planning that decide where values are stored, in the order in which make/make_plan.cpp runs them:
// allocations, transfers between stages, last uses, regions. Example: the output of a layer gets an
// allocation in region `boundary`; with m microbatches alive its region has m slots a layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/memory/region_bytes.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------ allocations

// Allocations of values that outlive the function that writes them.
struct PlacedAllocations {
  Allocations around;              // for adjacent values, the range of all of them
  std::vector<RegionBytes> sizes;  // by segment
};

// Fills plan.allocations and adds ranges. `first_instance`: of each segment. `base_program`: may be null.
// Throws an Error that names a value that cannot be stored as requested.
PlacedAllocations place_allocations(const Program& program, const Lowering& lowering,
                                    const BaseProgram* base_program,
                                    std::span<const std::int32_t> first_instance, Plan& plan);

// Removes allocations of parameter versions that are older than any that passes here read.
void forget_older_versions(const Program& program, Plan& plan);

// ------------------------------------------------------------ transfers

// Transfers between stages.

// Adds the queue for gradients of a tied parameter, if another rank holds the other copy.
void add_tie_queue(const Program& program, const Work& work, Plan& plan);
// Each direction between two stages has a queue, so that nothing waits for what it does not need. Needs
// plan.chunks, plan.instances and plan.allocations.
void plan_transfers(const Program& program, const Work& work, Plan& plan);

// ------------------------------------------------------------ last uses

// Last uses: after which step bytes are dead that outlive their function. Their next writer waits for it.

// Handles sums of gradients. Needs plan.functions and plan.instances.
void mark_dead_sums(const Program& program, Plan& plan);
// Handles saved activations. Needs plan.functions.
void mark_dead_slots(const Program& program, Plan& plan);

// ------------------------------------------------------------ place regions

// Layout: what each instance has for itself, for each microbatch, or shares with other instances.

// Buffers that instances reuse.
struct SharedInTime {
  const TimeSlots &gathered, &unreduced;
  const std::vector<Bundle>& reduced;
  bool far_ahead;  // see Lowering
};
// Fills plan.layout except for the places of ranges. Needs plan.calls, plan.chunks and plan.functions.
// `base_program`: may be null.
void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const SharedInTime& in_turn, const BaseProgram* base_program, Plan& plan);

}  // namespace prun
