// Gives values room in their regions, one beside the other.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/beneath.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

class HomeRoom {
 public:
  // `beneath`: where what lasts lies already; null: nowhere.
  HomeRoom(const Program& program, const Lowering& lowering, const Beneath* beneath, Layout& layout)
      : program_(program),
        lowering_(lowering),
        beneath_(beneath),
        layout_(layout),
        sizes_(program.segment_count()) {}

  // Takes room for one repetition of a segment, to which the address belongs.
  Address take(Id value, Region region, Id segment);

  // What has been taken so far, by segment.
  std::vector<RegionBytes> sizes() && { return std::move(sizes_); }

 private:
  Address home_beneath(Id value) const;
  std::int32_t range_for(Id value, Region region);

  const Program& program_;
  const Lowering& lowering_;
  const Beneath* const beneath_;
  Layout& layout_;
  std::vector<RegionBytes> sizes_;
};

}  // namespace prun
