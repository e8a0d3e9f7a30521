// Describes all of a plan's memory: one line of addresses, cut into ranges, and those into regions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/numbered.hpp"
#include "prun/types.hpp"

namespace prun {

// ------------------------------------------------------------ region

// Lists the parts of the arena by purpose, and the facts about each.

enum class Region : std::uint8_t {
  parameter,
  gradient,
  state,
  runtime,
  in_flight,          // runtime values of a step that begins before the one before it ends
  input,              // tokens, targets, samples of a microbatch
  boundary,           // output of an instance
  slot,               // values that its forward keeps for its backward
  leaving,            // such values that lie elsewhere meanwhile, until they have left
  returned,           // such values once they are back
  boundary_gradient,  // gradient of its output
  scratch,            // memory shared by all calls of the compute queue
  gathered,           // parameters kept in parts, while they are used
  unreduced,          // gradients of one microbatch, until they are summed over the ranks
  bucket,             // gradients on their way, where they travel in another type than they are kept in
  update,             // copies that updates on another device work with
  batch,              // staged microbatches of a step
  scalars,            // staged runtime values
  workspace,          // workspaces of kernels, if they lie apart from scratch
  carried,            // values that segments carry for all behind them, and their gradients
  arrived,            // what is stored elsewhere until its update, and no longer: gradients, or older state
  others,             // memory of other programs over what lasts here: see BaseProgram
};

// Says which part of a call decides where bytes of a region are placed.
enum class IndexedBy : std::uint8_t {
  nothing,     // nothing: no call reaches the bytes
  range,       // only the range: all calls share them
  lane,        // the range, and the microbatch's lane, if several go side by side
  instance,    // the instance; for gradients of steps that overlap, the step as well
  turn,        // the instance, and which of two buffers the microbatch has
  slot,        // the instance, and the microbatch's slot
  input_slot,  // the microbatch, however many instances there are
  carried,     // the instance, and the microbatch's slot of what is carried
  microbatch,  // the microbatch, and the side of the staging area
  side,        // that side alone
  step,        // the one of two overlapping steps
};

struct RegionFacts {
  Region region;
  const char* name;
  IndexedBy indexed_by;
  bool lasts = false;       // values stay there from step to step
  bool is_scratch = false;  // its layout depends on a rank's threads: ranks that do the same may differ there
  bool may_be_placed = false;  // no exchange, neighbour in the chain or other instance's turn needs it
  bool is_staged = false;      // the host writes it, in memory that both reach
  bool is_handed_on = false;   // its values pass from one instance to the next, or back
};

// The table is in the order of the enumerators.
inline constexpr RegionFacts region_table[] = {
    {.region = Region::parameter,
     .name = "parameters",
     .indexed_by = IndexedBy::instance,
     .lasts = true,
     .may_be_placed = true},
    {.region = Region::gradient,
     .name = "gradients",
     .indexed_by = IndexedBy::instance,
     .lasts = true,
     .may_be_placed = true},
    {.region = Region::state,
     .name = "optimizer state",
     .indexed_by = IndexedBy::instance,
     .lasts = true,
     .may_be_placed = true},
    {.region = Region::runtime, .name = "runtime", .indexed_by = IndexedBy::range, .may_be_placed = true},
    {.region = Region::in_flight, .name = "runtime in flight", .indexed_by = IndexedBy::step},
    {.region = Region::input, .name = "inputs", .indexed_by = IndexedBy::input_slot},
    {.region = Region::boundary, .name = "boundaries", .indexed_by = IndexedBy::slot, .is_handed_on = true},
    {.region = Region::slot, .name = "saved", .indexed_by = IndexedBy::slot, .may_be_placed = true},
    {.region = Region::leaving, .name = "saved, leaving", .indexed_by = IndexedBy::turn},
    {.region = Region::returned, .name = "saved, returned", .indexed_by = IndexedBy::turn},
    {.region = Region::boundary_gradient,
     .name = "boundary gradients",
     .indexed_by = IndexedBy::slot,
     .is_handed_on = true},
    {.region = Region::scratch, .name = "scratch", .indexed_by = IndexedBy::lane, .is_scratch = true},
    {.region = Region::gathered, .name = "gathered", .indexed_by = IndexedBy::instance},
    {.region = Region::unreduced, .name = "unreduced gradients", .indexed_by = IndexedBy::instance},
    {.region = Region::bucket, .name = "buckets", .indexed_by = IndexedBy::instance},
    {.region = Region::update, .name = "updates", .indexed_by = IndexedBy::instance, .is_scratch = true},
    {.region = Region::batch, .name = "batch", .indexed_by = IndexedBy::microbatch, .is_staged = true},
    {.region = Region::scalars, .name = "scalars", .indexed_by = IndexedBy::side, .is_staged = true},
    {.region = Region::workspace, .name = "workspaces", .indexed_by = IndexedBy::range, .is_scratch = true},
    {.region = Region::carried, .name = "carried", .indexed_by = IndexedBy::carried},
    {.region = Region::arrived,
     .name = "held for updates",
     .indexed_by = IndexedBy::instance,
     .may_be_placed = true},
    {.region = Region::others, .name = "other programs", .indexed_by = IndexedBy::nothing},
};
inline constexpr int regions = static_cast<int>(std::size(region_table));

constexpr const RegionFacts& facts_of(Region region) { return region_table[static_cast<int>(region)]; }
constexpr bool lists_regions_in_order() {
  for (int i = 0; i < regions; ++i)
    if (region_table[i].region != static_cast<Region>(i)) return false;
  return region_table[regions - 1].region == Region::others;
}
static_assert(lists_regions_in_order());

constexpr const char* name_of(Region region) { return facts_of(region).name; }
constexpr bool lasts(Region region) { return facts_of(region).lasts; }
constexpr bool is_scratch(Region region) { return facts_of(region).is_scratch; }

// Holds one entry for each region; they are visited in the order of the regions' numbers.
template <class T>
struct ByRegion : std::array<T, regions> {
  using std::array<T, regions>::operator[];
  T& operator[](Region region) { return (*this)[static_cast<std::size_t>(region)]; }
  const T& operator[](Region region) const { return (*this)[static_cast<std::size_t>(region)]; }
};

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
