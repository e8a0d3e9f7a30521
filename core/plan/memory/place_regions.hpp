// Lays the regions of the arena out: what each instance has for itself, what lies by microbatch, and what
// instances have in turn.
#pragma once

#include <span>

#include "plan/beneath.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/order/turns.hpp"
#include "plan/work.hpp"

namespace prun {

// What instances have in turn.
struct InTurn {
  const Turns &gathered, &unreduced;
  const std::vector<Bundle>& reduced;
  bool far_ahead;  // see Lowering
};
// Fills plan.layout, whose ranges have their places. Needs plan.calls, plan.chunks and plan.functions.
// `beneath`: what it is over; null: nothing.
void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const InTurn& in_turn, const Beneath* beneath, Plan& plan);

}  // namespace prun
