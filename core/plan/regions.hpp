// Lays the regions of the arena out: what each instance has for itself, what lies by microbatch, and what
// instances have in turn.
#pragma once

#include "plan/turns.hpp"

namespace prun {

// Bytes that one instance of a segment needs, by region and range of the layout.
struct RegionBytes {
  std::array<std::vector<std::int64_t>, regions> bytes;

  std::int64_t& of(Region region, std::int32_t range);
  std::int64_t of(Region region, std::int32_t range) const;
};

// The range of that place; made if there is none.
std::int32_t range_of(Layout& layout, MemoryPlace place);

// Of each instance of a plan; `sizes` by segment. Nothing of a receive stub is here but what passes through
// it.
std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region, std::int32_t range);

// What instances have in turn.
struct InTurn {
  const Turns &gathered, &unreduced;
  const std::vector<Bundle>& reduced;
  bool far_ahead;  // see Lowering
};
// Fills plan.layout, whose ranges have their places. Needs plan.calls, plan.chunks and plan.functions.
// `beneath`: the layout that it is over; null: none.
void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const InTurn& in_turn, const Layout* beneath, Plan& plan);

}  // namespace prun
