// Lays the regions of the arena out: what each instance has for itself, what lies by microbatch, and what
// instances have in turn.
#pragma once

#include <span>

#include "plan/base_program.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/work.hpp"

namespace prun {

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
