// Describes all of a plan's memory: one line of addresses, cut into ranges, and those into regions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbered.hpp"
#include "plan/region.hpp"
#include "prun/types.hpp"

namespace prun {

// Counts bytes by purpose; their sum is the arena.
struct Memory {
  ByRegion<std::int64_t> bytes{};
  std::int64_t total() const;
};

// Holds offsets within the arena: one line of addresses, cut into ranges.
struct Layout {
  struct Strided {
    std::int64_t base = 0;
    std::int64_t stride = 0;
  };
  // Covers one space of one device. Values that stay between two steps come first: persistent values, which
  // other programs find there, and the values of the step itself.
  struct Range {
    MemoryPlace place;
    std::int64_t begin = 0;
    Memory memory;
    std::int64_t kept = 0;  // bytes of values that stay; behind them others may write between two steps
    // These are per instance: parameter, gradient and state have no stride, and gradients of overlapping
    // steps have one by step; slot and boundary have one by slot, and so has boundary_gradient where it must
    // persist.
    ByRegion<Numbered<Strided>> instances;
    std::int64_t runtime = 0, workspace = 0;
    Strided in_flight;  // strided by step
    Strided scratch;    // strided by lane: a microbatch's slot, where several go side by side

    std::int64_t bytes() const { return memory.total(); }
  };
  // The first is the recipe's device's own memory, the second the pinned memory that steps are staged in.
  Numbered<Range> ranges;
  Strided input;  // strided by input slot
  Strided batch;  // strided by microbatch
  Strided scalars;
  std::int64_t batch_side = 0;  // distance from one staging side to the other
  Memory memory;                // memory of all ranges

  // Sums the bytes of all ranges that are memory.
  std::int64_t bytes_in_memory() const;
  // Returns the alignment of a range's regions, and of a function's values.
  std::int64_t alignment_in(const Range& range) const;

  // Returns the range that contains all of these bytes, or null if there is none.
  const Range* find(std::int64_t offset, std::int64_t bytes) const;
};
// Returns the range of that place, which is made if there is none.
std::int32_t range_of(Layout& layout, MemoryPlace place);

inline constexpr std::int64_t range_alignment = 4096;  // alignment of what a device allocates
// Ranges begin so far apart: each may grow, and it is at the same place in the plans of all programs over the
// same memory.
inline constexpr std::int64_t range_distance = std::int64_t{1} << 50;

}  // namespace prun
