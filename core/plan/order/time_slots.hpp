// Lets instances reuse memory: of gathered parameters, from gather to use; of local gradients, until they are
// summed over ranks. Instances that need theirs at the same time, by the order of passes, get different
// slots. Example: ZeRO-3 with a prefetch of one layer needs two slots: layers 0, 2, 4 use the first, 1, 3, 5
// the second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/order/bundles.hpp"
#include "plan/order/used_together.hpp"
#include "plan/work.hpp"

namespace prun {

// Says where each instance's part of a region is placed.
struct TimeSlots {
  std::vector<std::int64_t> bytes;  // bytes by instance
  Offsets offsets;

  bool overlap(std::int32_t a, std::int32_t b) const;
};
// Returns the instances whose gathering brings nothing and only computes, from parameters that are there.
Bundle made_here(const Program& program, const Plan& plan);
// Places gathered parameters: while they are used, those of the next use can be gathered. What is `made_here`
// stays for the step.
TimeSlots gathered_time_slots(const GatheredUses& uses, const Bundle& made_here,
                              std::vector<std::int64_t> bytes);
// Places gradients of microbatches: while those of a bundle are summed, the next can contribute. Offsets
// count from where scratch begins: they also use the scratch of functions that do not run meanwhile.
TimeSlots unreduced_time_slots(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                               std::vector<std::int64_t> bytes);
// Places gradients on their way: while those of a bundle travel in another type, the next ones are converted.
TimeSlots bucket_time_slots(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes);
// Returns true if a function touches values that are held for updates.
bool touches_arrived(const PlannedFunction& function);
// Places what is held for updates; it needs plan.calls. While one instance's is updated, the next one's
// arrives, and that of the one behind it.
TimeSlots arrived_time_slots(const Plan& plan, const std::vector<std::int64_t>& bytes);
// Places copies for updates; it needs plan.calls. While one instance is updated on another device, the next
// one's gradients come there and the parameters of the one before go back. More at a time would hide nothing
// more. Where each comes in three pieces or more, the next one's first piece comes when this one's first has
// gone, and both have the same memory.
//
// A transfer from or to drives takes time in proportion to its size. Behind an instance that is much larger
// than others three of those are soon there, and nothing more can come until it is back. Far ahead, others
// may come for as long as that takes, and for the next step as well: drives wait for nothing.
TimeSlots update_time_slots(const Plan& plan, Numbered<std::int64_t> bytes, bool far_ahead);

}  // namespace prun
