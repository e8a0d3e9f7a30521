#include "plan/memory/region_bytes.hpp"

namespace prun {

std::int64_t& RegionBytes::of(Region region, std::int32_t range) {
  Numbered<std::int64_t>& by_range = bytes[region];
  if (by_range.size() <= static_cast<std::size_t>(range))
    by_range.resize(static_cast<std::size_t>(range) + 1);
  return by_range[range];
}

std::int64_t RegionBytes::of(Region region, std::int32_t range) const {
  const Numbered<std::int64_t>& by_range = bytes[region];
  return static_cast<std::size_t>(range) < by_range.size() ? by_range[range] : 0;
}

std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region, std::int32_t range) {
  std::vector<std::int64_t> bytes;
  for (const Instance& instance : plan.instances) {
    const bool here = !instance.receive_stub || facts_of(region).is_handed_on;
    bytes.push_back(here ? sizes[instance.segment].of(region, range) : 0);
  }
  return bytes;
}

}  // namespace prun
