// Memory of a plan: one line of addresses (the arena), divided into ranges (one for each space of each
// device), and these into regions by purpose. Example: on a GPU with ZeRO-1 the first range has parameters,
// gradients, saved activations and scratch; the second, in pinned memory, has the staged inputs of two steps.
// A gradient's address is region + layer's offset + offset within the layer.
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

// The regions of the arena, and facts about each.

enum class Region : std::uint8_t {
  parameter,
  gradient,
  state,
  runtime,
  in_flight,          // scalars of a step that begins before the one before it ends
  input,              // tokens, targets, samples of a microbatch
  boundary,           // output of an instance
  slot,               // values that a layer's forward keeps for its backward
  leaving,            // saved values until they are offloaded
  returned,           // saved values once they are fetched back
  boundary_gradient,  // gradient of its output
  scratch,            // memory shared by all calls of the compute queue
  gathered,           // gathered parameters, while they are used
  unreduced,          // local gradients of a microbatch, until they are summed over the ranks
  bucket,             // gradients cast to the type in which they are reduced
  update,             // operands of updates on another device
  batch,              // staged microbatches of a step
  scalars,            // staged scalars
  workspace,          // workspaces of kernels, if separate from scratch
  carried,            // carried values and their gradients
  arrived,            // what is stored elsewhere until its update, and no longer: gradients, or older state
  others,             // memory of other programs that this one must keep: see BaseProgram
};

// Which part of a call the address of a byte in a region depends on, besides the range.
enum class IndexedBy : std::uint8_t {
  nothing,     // no call uses the bytes
  range,       // nothing else: all calls share them
  lane,        // the microbatch's lane, with batch.interleave
  instance,    // the layer; for gradients of overlapping steps, the step too
  turn,        // the layer, and which of two buffers
  slot,        // the layer, and the microbatch's slot
  input_slot,  // the microbatch
  carried,     // the layer, and the microbatch's slot of carried values
  microbatch,  // the microbatch, and the staging buffer
  side,        // the staging buffer
  step,        // the step, of two that overlap
};

struct RegionFacts {
  Region region;
  const char* name;
  IndexedBy indexed_by;
  bool lasts = false;          // values persist from step to step
  bool is_scratch = false;     // its layout depends on a rank's number of threads
  bool may_be_placed = false;  // no collective, neighbouring layer or stage needs it at a fixed place
  bool is_staged = false;      // the host writes it, in memory that both reach
  bool is_handed_on = false;   // its values pass from layer to layer
};

// In the order of the enumerators.
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

template <class T>
struct ByRegion : std::array<T, regions> {
  using std::array<T, regions>::operator[];
  T& operator[](Region region) { return (*this)[static_cast<std::size_t>(region)]; }
  const T& operator[](Region region) const { return (*this)[static_cast<std::size_t>(region)]; }
};

// Bytes by purpose; their sum is the arena.
struct Memory {
  ByRegion<std::int64_t> bytes{};
  std::int64_t total() const;
};

// Offsets within the arena.
struct Layout {
  struct Strided {
    std::int64_t base = 0;
    std::int64_t stride = 0;
  };
  // One space of one device. Values that persist between steps come first: persistent values, which other
  // programs over the same memory find there, then values of the step.
  struct Range {
    MemoryPlace place;
    std::int64_t begin = 0;
    Memory memory;
    std::int64_t kept = 0;  // bytes that persist; other programs may overwrite the rest between steps
    // These are per instance: parameter, gradient and state have no stride, and gradients of overlapping
    // steps have one by step; slot and boundary have one by slot, and so has boundary_gradient where it must
    // persist.
    ByRegion<Numbered<Strided>> instances;
    std::int64_t runtime = 0, workspace = 0;
    Strided in_flight;  // strided by step
    Strided scratch;    // strided by lane: a microbatch's slot, where several go side by side

    std::int64_t bytes() const { return memory.total(); }
  };
  // The first is the recipe's device's memory, the second the pinned memory for staging.
  Numbered<Range> ranges;
  Strided input;  // by input slot
  Strided batch;  // by microbatch
  Strided scalars;
  std::int64_t batch_side = 0;  // distance between staging buffers
  Memory memory;                // of all ranges

  // Returns the bytes of all ranges except drives.
  std::int64_t bytes_in_memory() const;
  // Applies to regions of a range, and values of a function.
  std::int64_t alignment_in(const Range& range) const;

  // Returns the range that contains all of these bytes; null if none does.
  const Range* find(std::int64_t offset, std::int64_t bytes) const;
};
// Adds the range if there is none for that place.
std::int32_t range_of(Layout& layout, MemoryPlace place);

inline constexpr std::int64_t range_alignment = 4096;  // of what devices allocate
// Distance between ranges. Each may grow, and starts at the same address in all programs over the same
// memory.
inline constexpr std::int64_t range_distance = std::int64_t{1} << 50;

}  // namespace prun
