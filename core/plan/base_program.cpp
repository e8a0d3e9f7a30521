#include "plan/base_program.hpp"

#include <algorithm>

namespace prun {

void make_room(Plan& plan, const Plan& above) {
  for (std::size_t r = 0; r < above.layout.ranges.size(); ++r) {
    const Layout::Range& needs = above.layout.ranges[r];
    if (r == plan.layout.ranges.size()) {
      Layout::Range& fresh = plan.layout.ranges.emplace_back();
      fresh.place = needs.place;
      fresh.begin = needs.begin;
    }
    Layout::Range& has = plan.layout.ranges[r];
    const std::int64_t more = std::max<std::int64_t>(0, needs.bytes() - has.bytes());
    has.memory.bytes[Region::others] += more;
    plan.layout.memory.bytes[Region::others] += more;
  }
}

}  // namespace prun
