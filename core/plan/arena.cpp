#include "plan/arena.hpp"

#include <algorithm>
#include <numeric>

#include "plan/offsets.hpp"

namespace prun {

std::int64_t Memory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

std::int64_t Layout::bytes_in_memory() const {
  std::int64_t bytes = 0;
  for (const Range& range : ranges)
    if (range.place.space != Space::disk) bytes += range.bytes();
  return bytes;
}

// Transfers of drives read and write host memory too.
std::int64_t Layout::alignment_in(const Range& range) const {
  const bool drives = std::any_of(ranges.begin(), ranges.end(),
                                  [](const Range& other) { return other.place.space == Space::disk; });
  return drives && range.place.space != Space::device ? drive_alignment : alignment;
}

const Layout::Range* Layout::find(std::int64_t offset, std::int64_t bytes) const {
  for (const Range& range : ranges)
    if (range.begin <= offset && offset + bytes <= range.begin + range.bytes()) return &range;
  return nullptr;
}

std::int32_t range_of(Layout& layout, MemoryPlace place) {
  const auto found = std::find_if(layout.ranges.begin(), layout.ranges.end(),
                                  [&](const Layout::Range& range) { return range.place == place; });
  const auto at = static_cast<std::int32_t>(found - layout.ranges.begin());
  if (found == layout.ranges.end()) layout.ranges.emplace_back().place = place;
  return at;
}

}  // namespace prun
