// Lays the regions of the arena out: what each instance has for itself, what lies by microbatch, and what
// instances have in turn.
#pragma once

#include "plan/turns.hpp"

namespace prun {

// Bytes that one instance of a segment needs, by region.
struct RegionBytes {
  std::array<std::int64_t, regions> bytes{};

  std::int64_t& of(Region region) { return bytes[static_cast<std::size_t>(region)]; }
  std::int64_t of(Region region) const { return bytes[static_cast<std::size_t>(region)]; }
};

// Of each instance of a plan; `sizes` by segment. Nothing of a receive stub is here but what passes through
// it.
std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region);

// Fills plan.layout. Needs plan.calls, plan.chunks and plan.functions.
void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const Turns& gathered, const Turns& unreduced, Plan& plan);

}  // namespace prun
