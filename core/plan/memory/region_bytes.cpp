#include "plan/memory/region_bytes.hpp"

#include "base/narrow.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

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

void refuse_more_than_addresses() {
  throw_error(ErrorCode::bad_input, "cannot plan a rank of more than ", size_text(range_distance),
              ": no machine has as much memory; take a smaller batch.micro, model.seq or model, or more "
              "ranks that share it");
}

void check_can_be_counted(const Plan& plan, std::span<const RegionBytes> sizes) {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  std::int64_t all = 0;
  for (const Instance& instance : plan.instances)
    for (int r = 0; r < regions; ++r)
      for (const std::int64_t bytes : sizes[instance.segment].bytes[static_cast<std::size_t>(r)])
        all = saturated_sum(all, bytes);
  if (all >= most) refuse_more_than_addresses();
}

namespace {

bool has(HeldPart held, Region region) {
  switch (held) {
    case HeldPart::whole: return true;
    case HeldPart::boundary: return facts_of(region).is_handed_on;
    case HeldPart::carried: return region == Region::carried;
  }
  return false;
}

}  // namespace

std::vector<std::int64_t> bytes_by_instance(const Plan& plan, std::span<const RegionBytes> sizes,
                                            Region region, std::int32_t range) {
  std::vector<std::int64_t> bytes;
  for (const Instance& instance : plan.instances)
    bytes.push_back(has(instance.held, region) ? sizes[instance.segment].of(region, range) : 0);
  return bytes;
}

}  // namespace prun
