// Assigns addresses in regions that instances reuse, such as gathered parameters and local gradients: those
// that need memory at the same time get different addresses. Example: ZeRO-3 gathers one layer ahead, so two
// slots suffice: layers 0, 2 and 4 use the first, 1, 3 and 5 the second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/order/bundles.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------------- used together
// Decides which instances share a collective: those that are consecutive in the order in which parameters are
// used, or gradients are complete. Example: layers 3 and 4 in different chunks of a pipeline are not used one
// after the other, so they do not share a gather.

// Is a row of consecutive calls for which parameters are gathered together.
struct GatheredUse {
  Bundle instances;
  std::int64_t calls = 0;
};
using GatheredUses = std::vector<GatheredUse>;
// Returns the instances with a secondary copy of their parameters, in the order of first use.
std::vector<std::int32_t> renewed_in_order(const Plan& plan, const GatheredUses& uses);
GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling);

// Returns bundles of instances whose gradients are summed over the ranks together, in the order in which they
// are complete. A bundle is of one pass; gradients tied to another stage come last.
std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling);

// ------------------------------------------------------------------- time slots

// Is the place of each instance's part of a region.
struct TimeSlots {
  std::vector<std::int64_t> bytes;  // bytes by instance
  Offsets offsets;

  bool overlap(std::int32_t a, std::int32_t b) const;
};
// Returns the instances whose function `gather` only computes, from parameters that the rank has.
Bundle made_here(const Program& program, const Plan& plan);
// Places gathered parameters so that those of the next use can be gathered during one. What is `made_here` is
// kept for the step.
TimeSlots gathered_time_slots(const GatheredUses& uses, const Bundle& made_here,
                              std::vector<std::int64_t> bytes);
// Places local gradients so that the next instances can add to theirs while those of a bundle are summed.
// Offsets are relative to the scratch region, of which they use what functions that run meanwhile do not.
TimeSlots unreduced_time_slots(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                               std::vector<std::int64_t> bytes);
// Places gradients cast for their collective, so that the next are cast while those of a bundle are summed.
TimeSlots bucket_time_slots(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes);
// Returns true if a function touches region `arrived`, which holds values for updates.
bool touches_arrived(const PlannedFunction& function);
// Places what is held for updates so that the next two instances' can arrive during an update. Needs
// plan.calls.
TimeSlots arrived_time_slots(const Plan& plan, const std::vector<std::int64_t>& bytes);
// Places the copies that updates on another device need. Needs plan.calls. During an update the next
// instance's gradients arrive and the previous one's parameters return, so three instances have memory; more
// would hide nothing. Updates of three pieces or more share memory instead: the next instance's first piece
// arrives when this one's first has left.
//
// Transfers from drives take time in proportion to their size. After an instance that is much larger than the
// next ones, three of these would soon be there, and the drives idle until it has returned. With `far_ahead`,
// as many may arrive as fit into the bytes of the largest, also those of the next step.
TimeSlots update_time_slots(const Plan& plan, Numbered<std::int64_t> bytes, bool far_ahead);

}  // namespace prun
