// A rank's plan: the address of every byte, and all calls of a step in order. Everything is decided here
// before anything runs; the executor only carries it out, and the simulator only times it.
//
// A function is planned once per segment. Its addresses are relative to what a call names: the layer
// (instance), the microbatch's slot, the staging buffer. Example: call {forward of block, instance 3,
// microbatch 1, slot 1} in queue 0 waits for call 12 of queue 4, the all-gather of layer 3's parameters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "program/step_program.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "prun/types.hpp"

namespace prun {

// ------------------------------------------------------------------- arena
// Memory of a plan: one line of addresses (the arena), divided into ranges (one for each space of each
// device), and these into regions by purpose. Example: on a GPU with ZeRO-1 the first range has parameters,
// gradients, saved activations and scratch; the second, in pinned memory, has the staged inputs of two steps.
// A gradient's address is region + layer's offset + offset within the layer.

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
  nothing,      // no call uses the bytes
  range,        // nothing else: all calls share them
  interleaved,  // its number among those interleaved, with batch.interleave
  instance,     // the layer; for gradients of overlapping steps, the step too
  turn,         // the layer, and which of two buffers
  slot,         // the layer, and the microbatch's slot
  input_slot,   // the microbatch
  carried,      // the layer, and the microbatch's slot of carried values
  microbatch,   // the microbatch, and the staging buffer
  side,         // the staging buffer
  step,         // the step, of two that overlap
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
    {.region = Region::scratch, .name = "scratch", .indexed_by = IndexedBy::interleaved, .is_scratch = true},
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
    Strided scratch;    // strided by slot, where microbatches are interleaved

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

// ------------------------------------------------------------------- plan

enum class Whose : std::uint8_t {
  own,       // of the call's instance
  previous,  // of the instance before it
  fixed,     // of `instance`
};

struct Address {
  Region region = Region::scratch;
  Whose whose = Whose::own;
  std::int32_t instance = -1;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  AxisId part_axis = no_axis;  // shards a flat range; the rank's coordinate selects one
  std::int32_t range = 0;      // in the layout
};

// Addresses of values that outlive the function that writes them. All others are scratch, addressed in the
// function's steps.
using Allocations = std::map<Id, Address>;

struct PlannedOperand {
  Id value = none;  // none if it is absent
  Address address;
};

// A collective for a comm plugin; `in` and `out` are equal if it works in place.
struct PlannedExchange {
  CommKind kind = CommKind::barrier;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  std::int64_t count = 0;  // elements
  std::int32_t peer = -1;  // the other member of a send or receive
  Address in, out;
  // Number of operations, each on the elements after those of the one before.
  std::int64_t pieces = 1;
  // If not 0, members shift pieces by so many positions (plan/bound_calls.hpp); with `chunks`, in the order
  // of prun/sequence_order.hpp.
  std::int64_t distance = 0, chunks = 0;

  // Returns true for a send or a receive.
  bool is_between_two() const { return (kind == CommKind::send || kind == CommKind::recv) && distance == 0; }
};

// Guard bytes at an operand or the workspace of a step, which the kernel must not touch.
struct Fence {
  Address bytes;
  std::int32_t operand = -1;  // -1: the workspace
  bool before = false;        // in front of it, otherwise behind
};

struct PlannedStep {
  Id op = none;                    // none for a transfer between stages
  Kernel kernel = nullptr;         // null for a collective
  std::int32_t device = 0;         // of the kernel
  std::uint32_t writes_first = 0;  // see KernelDef
  std::optional<PlannedExchange> exchange;
  std::vector<Id> also;  // further ops in the same collective
  std::vector<PlannedOperand> operands;
  Address workspace;
  std::vector<Address> dead_after;  // bytes that no later step reads
  std::vector<Fence> fences;        // guard regions, if the plan has any
};

// Steps [first, last) of a function, all in one queue: what a call runs.
struct Piece {
  std::int32_t first = 0, last = 0;
  std::int32_t queue = 0;
};

// A piece of a function for one instance.
struct InstancePiece {
  std::int32_t function = 0, piece = 0, instance = 0;

  friend bool operator==(const InstancePiece&, const InstancePiece&) = default;
};

struct PlannedFunction {
  Id segment = none;
  FunctionKind kind = FunctionKind::forward;
  std::int32_t delay = -1;  // of its instances; -1: any
  Numbered<PlannedStep> steps;
  Numbered<Piece> pieces;
  Region scratch = Region::scratch;           // region of values that no other function reads
  std::vector<std::int64_t> scratch_bytes;    // by range of the layout
  std::vector<std::int64_t> workspace_bytes;  // of separate workspaces, by range
  OpCost cost;
  bool uses_batch = false;   // addresses depend on the staging buffer
  bool uses_inputs = false;  // addresses depend on the microbatch's input slot
  // A joint function of the planner runs these pieces at once, for several instances. Segment and instance of
  // its calls are those of the first.
  std::vector<InstancePiece> joins;
};

// Tells what of an instance a rank holds.
enum class HeldPart : std::uint8_t {
  whole,
  // A receive stub stands for the last instance of the stage before, which another rank holds: only what that
  // hands on is here, once it has arrived, and the gradient of it, until it is sent back.
  boundary,
  // A stub may stand for a segment in front of all that this rank holds: only what it carries is here, and
  // the gradient of that.
  carried,
};

// One repetition of a segment: a layer.
struct Instance {
  Id segment = none;
  std::int64_t layer = 0;
  HeldPart held = HeldPart::whole;
  std::int32_t delay = 0;  // age in updates of the parameters that its passes read

  bool is_stub() const { return held != HeldPart::whole; }
};

struct Wait {
  std::int32_t queue = 0;
  std::int32_t call = 0;       // position in that queue
  std::int32_t steps_ago = 0;  // 0: of this iteration, 1: of the one before
};

// Position of an iteration in a row of steps: those that overlap, or those of a text. If steps overlap, an
// iteration has the first calls of its step, and between them the last calls of earlier steps (Call::behind).
// The first iterations of a row lack earlier steps, and in the last ones no step begins.
struct Iteration {
  static constexpr std::int32_t many = 255;
  std::int32_t before = many;  // iterations of its row before it, at most `many`
  std::int32_t ended = 0;  // 0 if a step begins in it; otherwise how many iterations ago the last one began

  static const Iteration beginning, going_on, ending;
  friend bool operator==(const Iteration&, const Iteration&) = default;
};
inline constexpr Iteration Iteration::beginning{0, 0};
inline constexpr Iteration Iteration::going_on{many, 0};
inline constexpr Iteration Iteration::ending{many, 1};

struct Call {
  std::int32_t function = 0;
  std::int32_t piece = 0;
  std::int32_t instance = 0;
  std::int32_t microbatch = -1;  // -1: for none
  std::int32_t slot = 0;
  std::int32_t stub_slot = 0;     // slot of the receive stub that it is for, or reads from
  std::int32_t carried_slot = 0;  // slot of carried values
  std::int32_t queue = 0;
  std::int32_t position = 0;  // in its queue
  std::int32_t behind = 0;    // how many steps earlier its step is
  // The call runs in iterations with so many before them; in others it only waits.
  std::uint8_t from = 0, to = Iteration::many;
  // KernelArgs::first by step; empty if no sum begins with this call.
  std::vector<std::uint32_t> first;

  std::uint32_t first_of(std::size_t step) const { return first.empty() ? 0 : first[step]; }
  bool runs_in(Iteration iteration) const {
    return iteration.ended <= behind && from <= iteration.before && iteration.before <= to;
  }
  std::vector<Wait> waits;
  // The call is left out if this one is done when its queue comes to it (FunctionKind::speculate).
  std::optional<Wait> unless;
  // During a save, the call also waits for this one of its reads; -1: none.
  std::int32_t save_read = -1;
};

enum : std::int32_t { compute_queue = 0, copy_queue = 1 };  // of device 0

// A queue. Each communicator has one, so that collectives which should overlap use different ones.
struct QueueInfo {
  std::string name;
  bool workers = false;
  AxisId axis = no_axis;  // mesh axis of its groups; no_axis: it does not communicate
  std::int32_t calls = 0;
  std::int64_t peer = -1;  // coordinate of its only peer; -1: all
  std::int32_t device = 0;

  bool communicates() const { return axis != no_axis; }
  // Returns them in order.
  std::vector<int> members(const Mesh& mesh, std::int64_t rank) const;
};

// A stage as its rank runs it.
struct Chunk {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // instances
  std::int32_t stub = -1;            // instance before the first one; -1: nothing comes from elsewhere
  // The chunk of this rank that ends where this one begins; -1: none.
  std::int32_t follows = -1;
  std::int32_t slots = 1;  // microbatches of it that are alive at once; a receive stub has one slot more
  // Functions that communicate with neighbours; -1: no neighbour.
  std::int32_t receive = -1, send = -1, receive_gradient = -1, send_gradient = -1;
};

// A value of one instance that outlives the step.
struct PersistentValue {
  Id value = none;
  std::int32_t instance = 0;

  friend auto operator<=>(const PersistentValue&, const PersistentValue&) = default;  // NOLINT: no null in it
};
// A read of the saver: all values that the same call is the first of a step to overwrite.
using SaveRead = std::vector<PersistentValue>;

struct Plan {
  Numbered<PlannedFunction> functions;
  Numbered<Instance> instances;
  std::vector<Call> calls;  // in a valid order, which each queue keeps
  Numbered<QueueInfo> queues;
  Numbered<Chunk> chunks;
  std::int64_t microbatches = 1;
  std::int64_t input_slots = 2;
  std::int64_t carried_slots = 0;  // most microbatches with carried values here
  std::int64_t interleave = 1;     // microbatches that go through the layers side by side
  bool overlaps = false;           // a step begins before the one before it ends
  // These count the copies of memory that exist because steps overlap: of what is staged (inputs and numbers
  // too), of slots, of boundaries from another rank, of gradients. A step uses copy number step % n.
  std::int32_t staging_copies = 2, slot_copies = 1, received_copies = 1, gradient_copies = 1;
  std::int32_t running = 2;  // most steps that may run at a time, on all ranks alike
  // Reads of a save, in the order in which a step overwrites what they read. They run once a save, during the
  // steps that follow it. Empty: a save is read while no step runs.
  Numbered<SaveRead> save_reads;
  Layout layout;
  Allocations allocations;
  // The rank's position on each axis. Ranks with the same plan differ only in this.
  std::vector<std::int64_t> coordinates;
  std::vector<std::int64_t> extents;  // of the axes

  std::span<const PlannedStep> steps(const Call& call) const;
  // Returns the instance that has a segment's carried values: its own, or a stub; -1: none is here.
  std::int32_t carrier_of(Id segment) const;
  // Returns how many instances are updated speculatively.
  std::int32_t speculated() const;
  // Returns -1 if there is none.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const;

  // Returns the shard of a flat range that this rank has, and how many there are; 0 and 1 for an address
  // without shards.
  std::int64_t part_of(const Address& address) const;
  std::int64_t parts_of(const Address& address) const;
  // Throws for a value that only a function has.
  const Address& allocation(Id value) const;
  // Returns which copy of what is staged a step uses, its side.
  int side_of(std::int64_t step) const { return static_cast<int>(step % staging_copies); }
  // Returns the side of a call's step; `side` is that of the step that the iteration is of.
  int side_of(const Call& call, int side) const {
    return (side + staging_copies - call.behind % staging_copies) % staging_copies;
  }
  // Returns how many iterations after its first call a step's last call comes.
  std::int32_t depth() const;
  // Returns the address for a call; `side` is that of the iteration's step.
  std::int64_t resolve(const Call& call, const Address& address, int side) const;
  // Resolves an allocation that belongs to no microbatch.
  std::int64_t resolve(std::int32_t instance, const Address& allocation) const;
  // Returns the read of a save that has a value; 0 if there are none.
  std::int32_t save_read_of(const PersistentValue& value) const;
  // Returns the input slot of a call's microbatch, which is of a step of that side.
  std::int64_t input_slot_of(const Call& call, int side) const;
  // Returns which of two buffers has what is saved elsewhere, on its way: those that follow each other
  // differ, either in a pass or, where an instance has all microbatches before the next one has, in the row
  // of passes.
  std::int64_t turn_of(std::int32_t instance, std::int32_t slot) const {
    const bool alone = chunks.size() + 1 >= instances.size();
    const std::int64_t before_the_next = interleave > 1 ? interleave : microbatches;
    return (instance * (alone ? before_the_next : 1) + slot) % 2;
  }
};

// ------------------------------------------------------------------- call text
// Names calls in traces, flight records and messages: "forward block.3 mb 1".

std::string call_text(const Program& program, const Plan& plan, const Call& call);

// Returns, for a call that communicates, a text such as "all_reduce dp.reduce 3.10 MiB".
std::string call_name(const Program& program, const Plan& plan, const Call& call);

// ------------------------------------------------------------------- base program
// Plans one program over the memory of another. Example: evaluation. Its plan has parameters at the addresses
// of the training plan, and its activations reuse the memory where training keeps nothing between two steps.

// Persistent values have the places of this plan, found by segment and name; the rest reuses memory where
// this plan keeps nothing between steps. Steps of one program run while none of the other does.
struct BaseProgram {
  const Program& program;
  const Plan& plan;

  // Returns true if `above` is the same program for another number of microbatches. It then has the same
  // staging memory, and saves read the base plan's values.
  bool is_of(const Program& above) const { return &program == &above; }
};
// Enlarges a plan to the memory of one that was made over it.
void make_room(Plan& plan, const Plan& above);

}  // namespace prun
