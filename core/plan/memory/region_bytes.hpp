// Computes how much of each region the instances of a plan need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Holds the bytes that one instance of a segment needs, by region and range of the layout.
struct RegionBytes {
  ByRegion<Numbered<std::int64_t>> bytes;

  std::int64_t& of(Region region, std::int32_t range);
  std::int64_t of(Region region, std::int32_t range) const;
};

// Throws an Error that says that a rank would need more memory than there are addresses for.
[[noreturn]] void refuse_more_than_addresses();
// Refuses sizes so large that sums over the instances could not be counted, before any sum is taken.
void check_can_be_counted(const Plan& plan, std::span<const RegionBytes> sizes);

// Returns the bytes of each instance of a plan; `sizes` are by segment. A receive stub needs only what passes
// through it.
std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region, std::int32_t range);

}  // namespace prun
