// Bytes of each region that a plan's instances need. Example: a block may need 25 MB of `parameter`, 50 MB of
// `gradient` and 84 MB of `slot` in the device's range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Bytes of one instance of a segment, by region and range.
struct RegionBytes {
  ByRegion<Numbered<std::int64_t>> bytes;

  std::int64_t& of(Region region, std::int32_t range);
  std::int64_t of(Region region, std::int32_t range) const;
};

// Throws an Error: more memory than there are addresses.
[[noreturn]] void refuse_more_than_addresses();
// Refuses sizes whose sum over instances would overflow.
void check_can_be_counted(const Plan& plan, std::span<const RegionBytes> sizes);

// Returns them by instance; `sizes` are by segment. A receive stub needs only what passes through it.
std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region, std::int32_t range);

}  // namespace prun
