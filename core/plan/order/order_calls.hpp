// Orders the calls of a step.
#pragma once

#include <span>
#include <vector>

#include "plan/carried_spans.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/order/used_together.hpp"
#include "plan/work.hpp"

namespace prun {

// Lists instances that exchange together.
struct Bundles {
  GatheredUses uses;
  std::vector<Bundle> reduced, updated, renewed;
};
// Adds the passes of each microbatch in the order that the work says, with what goes from stage to stage
// around them, then the update. Microbatches are loaded one ahead; parameters kept in parts are gathered one
// use ahead; the gradients of a bundle are summed over the ranks as soon as they are complete.
//
// It needs plan.functions, plan.instances, plan.chunks and plan.queues; it fills calls, and how many
// microbatches of a chunk are alive at once, and adds joint functions. Which call waits for which is decided
// by plan/waits.hpp.
void order_calls(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
                 const TimeSlots& gathered, Plan& plan);

}  // namespace prun
