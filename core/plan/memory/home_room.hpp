// Gives values room in their regions, one behind the other.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/base_program.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

class HomeRoom {
 public:
  // `base_program` says where values that last lie already; null: nowhere.
  HomeRoom(const Program& program, const Lowering& lowering, const BaseProgram* base_program, Layout& layout)
      : program_(program),
        lowering_(lowering),
        base_program_(base_program),
        layout_(layout),
        sizes_(program.segment_count()) {}

  // Takes room for one repetition of the segment that the address belongs to.
  Address take(Id value, Region region, Id segment);

  // Returns the bytes taken so far, by segment.
  std::vector<RegionBytes> sizes() && { return std::move(sizes_); }

 private:
  Address home_beneath(Id value) const;
  std::int32_t range_for(Id value, Region region);

  const Program& program_;
  const Lowering& lowering_;
  const BaseProgram* const base_program_;
  Layout& layout_;
  std::vector<RegionBytes> sizes_;
};

}  // namespace prun
