// A rank's plan: where every byte lies and what is called in which order. Everything is decided here, before
// anything runs; the executor only carries it out and the simulator only times it.
//
// A function is planned once per segment, with addresses relative to what a call brings: the segment's
// repetition (instance), a microbatch's slot, the side of the double-buffered staging area. A call names
// them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "prun/schedule.hpp"

namespace prun {

// Parts of the arena.
enum class Region : std::uint8_t {
  parameter,
  gradient,
  state,
  runtime,
  input,              // tokens, targets, samples of a microbatch
  boundary,           // what an instance hands on
  slot,               // what its forward keeps for its backward
  leaving,            // the same, where it lies elsewhere meanwhile, until it has left
  returned,           // and once it is back
  boundary_gradient,  // gradient of what it hands on
  scratch,            // shared by all calls of the compute queue
  gathered,           // parameters kept in parts, while they are used
  unreduced,          // gradients of one microbatch, until they are summed over the ranks
  bucket,             // gradients on their way, where they travel in another type than they are kept in
  update,             // copies that updates on another device work with
  batch,              // staged microbatches of a step
  scalars,            // staged runtime values
  others,             // of other programs over what lasts here: see Beneath
};
inline constexpr int regions = 18;
const char* name_of(Region region);
// Whether what lies there is there from step to step.
bool lasts(Region region);
// Whether it is laid out as a rank's threads need it: ranks that do the same may differ there.
bool is_scratch(Region region);

enum class Whose : std::uint8_t {
  own,       // of the instance the call is for
  previous,  // of the instance before it in the chain
  fixed,     // of `instance`
};

struct Address {
  Region region = Region::scratch;
  Whose whose = Whose::own;
  std::int32_t instance = -1;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  AxisId part_axis = no_axis;  // the rank's own part of a flat range, by its coordinate on this axis
  std::int32_t range = 0;      // of the layout
};

// Where values lie that outlive the function that writes them. All others are scratch, wherever a function's
// own steps say.
using Homes = std::map<Id, Address>;

struct PlannedOperand {
  Id value = none;  // none: absent
  Address address;
};

// What a comm plugin is asked to do: `in` and `out` are the same where it works in place.
struct PlannedExchange {
  CommKind kind = CommKind::barrier;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  std::int64_t count = 0;  // elements
  std::int32_t peer = -1;  // member that it is sent to or received from
  Address in, out;
  // Operations that it takes, each on so many elements beside those of the one before.
  std::int64_t pieces = 1;
};

// Bytes beside an operand or the workspace of a step, which its kernel must leave alone.
struct Fence {
  Address bytes;
  std::int32_t operand = -1;  // -1: the workspace
  bool before = false;        // in front of it, or behind it
};

struct PlannedStep {
  Id op = none;                    // none: a transfer between stages
  Kernel kernel = nullptr;         // null: an exchange
  std::int32_t device = 0;         // whose kernel it is
  std::uint32_t writes_first = 0;  // of the kernel: see KernelDef
  std::optional<PlannedExchange> exchange;
  std::vector<Id> also;  // further ops whose exchange this one includes
  std::vector<PlannedOperand> operands;
  Address workspace;
  std::vector<Address> dead_after;  // bytes nobody reads again once this step is done
  std::vector<Fence> fences;        // of a kernel, where the plan has any
};

// Steps [first, last) of a function, all for one queue: what a call runs.
struct Piece {
  std::int32_t first = 0, last = 0;
  std::int32_t queue = 0;
};

// A function's piece, for one instance.
struct InstancePiece {
  std::int32_t function = 0, piece = 0, instance = 0;

  friend bool operator==(const InstancePiece&, const InstancePiece&) = default;
};

struct PlannedFunction {
  Id segment = none;
  FunctionKind kind = FunctionKind::forward;
  std::vector<PlannedStep> steps;
  std::vector<Piece> pieces;
  Region scratch = Region::scratch;         // where that of its values lies that nobody reads after it
  std::vector<std::int64_t> scratch_bytes;  // by range of the layout
  OpCost cost;
  bool uses_batch = false;   // addresses depend on the staging side
  bool uses_inputs = false;  // addresses depend on the microbatch's input slot
  // Of one that the planner made: what it does at once, for several instances. Segment and instance of its
  // calls are the first one's.
  std::vector<InstancePiece> joins;
};

// One repetition of a segment.
struct Instance {
  Id segment = none;
  std::int64_t layer = 0;
  // Stands for the last instance of the stage before, which another rank holds: no more of it is here than
  // what it hands on, once that has arrived, and the gradient of that, until it is sent back.
  bool receive_stub = false;
};

// All repetitions of all segments of the model, in the order in which a microbatch passes them.
std::vector<Instance> chain_of(const Program& program);

struct Wait {
  std::int32_t queue = 0;
  std::int32_t call = 0;       // position within that queue's calls of a step
  std::int32_t steps_ago = 0;  // 0: this step's, 1: the step before
};

struct Call {
  std::int32_t function = 0;
  std::int32_t piece = 0;
  std::int32_t instance = 0;
  std::int32_t microbatch = -1;  // -1: not of a microbatch
  std::int32_t slot = 0;
  std::int32_t stub_slot = 0;  // of the receive stub it is for, or reads from
  std::int32_t queue = 0;
  std::int32_t position = 0;  // within its queue
  // By step: KernelArgs::first. Empty: no sum begins with this call.
  std::vector<std::uint32_t> first;

  std::uint32_t first_of(std::size_t step) const { return first.empty() ? 0 : first[step]; }
  std::vector<Wait> waits;
};

enum : std::int32_t { compute_queue = 0, copy_queue = 1 };  // of device 0

// Each communicator has a queue of its own: what should overlap has different ones.
struct QueueInfo {
  std::string name;
  bool workers = false;
  AxisId axis = no_axis;  // of the mesh, whose groups it connects; no_axis: it does not communicate
  std::int32_t calls = 0;
  std::int64_t peer = -1;  // it connects this rank with that coordinate of the axis only; -1: with all
  std::int32_t device = 0;

  bool communicates() const { return axis != no_axis; }
  // The ranks it connects, in order.
  std::vector<int> members(const Mesh& mesh, std::int64_t rank) const;
};

// What a rank is to do with each microbatch. Without a pipeline: all of the chain, forward and back.
struct ChunkWork {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // instances of the chain
  // Coordinates that have the stage before and the one after; -1: there is none.
  std::int64_t from = -1, to = -1;
};
struct Work {
  AxisId axis = no_axis;  // of the pipeline; no_axis: there is none
  std::int64_t coordinate = -1;
  bool split = false;         // weight gradients are a function of their own
  std::int64_t tied_to = -1;  // coordinate of the rank that holds the other copy of a parameter
  std::vector<ChunkWork> chunks;
  std::vector<ScheduleCall> calls;

  // Whether others pass an instance between two passes of a microbatch.
  bool interleaves() const { return axis != no_axis || chunks.size() > 1; }
};
Work whole_work(const Program& program, std::int64_t microbatches);
// All microbatches through an instance before the next one, forward and back: each is a stage of its own.
Work vertical_work(const Program& program, std::int64_t microbatches);
// The same of a program without backward.
Work forward_work(Work work);

// A stage as its rank runs it.
struct Chunk {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // instances
  std::int32_t stub = -1;            // instance in front of the first one; -1: nothing comes from elsewhere
  // It goes on where the chunk of this number ends, on the same rank; -1: it does not.
  std::int32_t follows = -1;
  std::int32_t slots = 1;  // microbatches of it that are alive at once; a receive stub has one slot more
  // Functions that receive and send; -1: there is no such neighbour.
  std::int32_t receive = -1, send = -1, receive_gradient = -1, send_gradient = -1;
};

// Bytes by purpose; their sum is the arena.
struct Memory {
  std::array<std::int64_t, regions> bytes{};
  std::int64_t total() const;
};

// Offsets within the arena: one line of addresses, cut into ranges.
struct Layout {
  struct Strided {
    std::int64_t base = 0;
    std::int64_t stride = 0;
  };
  // What lies in one space of one device. What stays as it is between two steps comes first: what lasts,
  // which other programs find there, and the values of the step itself.
  struct Range {
    MemoryPlace place;
    std::int64_t begin = 0;
    Memory memory;
    std::int64_t kept = 0;  // bytes of what stays; behind it others may write between two steps
    // Per instance: parameter, gradient and state without stride; slot and boundary by slot;
    // boundary_gradient by slot where it must last.
    std::array<std::vector<Strided>, regions> instances;
    std::int64_t runtime = 0, scratch = 0;

    std::int64_t bytes() const { return memory.total(); }
  };
  // The first is the recipe's device's own memory, the second the pinned memory that steps are staged in.
  std::vector<Range> ranges;
  Strided input;  // by input slot
  Strided batch;  // by microbatch
  Strided scalars;
  std::int64_t batch_side = 0;  // from one staging side to the other
  Memory memory;                // of all ranges

  // Of all that are memory.
  std::int64_t bytes_in_memory() const;
  // What a range's regions, and values of a function, begin at multiples of.
  std::int64_t alignment_in(const Range& range) const;

  // The range that all of these bytes lie in; null: there is none.
  const Range* find(std::int64_t offset, std::int64_t bytes) const;
};
inline constexpr std::int64_t range_alignment = 4096;  // of what a device allocates
// From where a range begins to where the next one does: each may grow, and lies in the plans of all programs
// over the same memory at the same place.
inline constexpr std::int64_t range_distance = std::int64_t{1} << 50;

struct Plan {
  std::vector<PlannedFunction> functions;
  std::vector<Instance> instances;
  std::vector<Call> calls;  // a valid order; each queue runs its own in this order
  std::vector<QueueInfo> queues;
  std::vector<Chunk> chunks;
  std::int64_t microbatches = 1;
  std::int64_t input_slots = 2;
  Layout layout;
  Homes homes;
  // Where this rank stands on each axis: all that ranks with the same plan do not share.
  std::vector<std::int64_t> coordinates;

  std::span<const PlannedStep> steps(const Call& call) const;
  // The function of that kind of the instance's segment, or -1.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const;

  // Throws for what only a function has.
  const Address& home(Id value) const;
  // Where an address lies for a call; side is the step's parity.
  std::int64_t resolve(const Call& call, const Address& address, int side) const;
  // Where a home lies that is no microbatch's.
  std::int64_t resolve(std::int32_t instance, const Address& home) const;
  // Which of two buffers has what is saved elsewhere, on its way: those that follow each other differ, be it
  // in a pass or, where an instance has all microbatches before the next one has, in the row of passes.
  std::int64_t turn_of(std::int32_t instance, std::int32_t slot) const {
    const bool alone = chunks.size() + 1 >= instances.size();
    return (instance * (alone ? microbatches : 1) + slot) % 2;
  }
};

struct OfferedKernel {
  const KernelDef* def = nullptr;  // null: there is none
  std::string by;                  // "op plugin 'squared-relu'"
};

// What is to be known of a device of the rank: where its kernels come from, how many threads their workspaces
// are for, and what it reaches.
struct PlanDevice {
  std::function<OfferedKernel(std::string_view op)> kernel;
  std::int32_t threads = 1;
  std::string name, kind;
  bool host_memory = false, asynchronous = false, tier = false;
};

struct Lowering {
  std::vector<PlanDevice> devices;  // the first is the recipe's
  // Bytes up to which instances exchange together, 0: each does alone; nothing: see plan/bundles.hpp.
  std::optional<std::int64_t> bundle;
  // What updates need of drives may take more memory than it must, so that drives wait for nothing: see
  // take_update_turns().
  bool far_ahead = false;
  // Bytes kept free in front of every value and workspace, and as many behind it: 0 or a multiple of the
  // alignment.
  std::int64_t fence = 0;

  // Nobody computes with what lies on a disk.
  std::int64_t fence_in(Space space) const { return space == Space::disk ? 0 : fence; }
};
inline constexpr std::int64_t fence_bytes = 1024;  // where there are any

// What another program's plan is made over: what lasts has the places that it has here, by segment and name
// of the value, and the rest lies where this plan has nothing that stays. The steps of one run while none of
// the other does.
struct Beneath {
  const Program& program;
  const Plan& plan;
};
// Lets a plan have as much memory as one that was made over it.
void make_room(Plan& plan, const Plan& above);

// Throws an Error naming what does not fit.
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank = 0);
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const Beneath* beneath = nullptr);

// Replays steps over shadow memory, until it repeats: every read finds the value it means, as of the step it
// means, written before on its own queue or across queues behind a wait; no live bytes are overwritten; sums
// begin once; every op of the program with an effect is called.
void check_plan(const Program& program, const Plan& plan);
// One that was made over another: what lasts lies where it does there, and nothing of what stays there is
// written.
void check_over(const Program& program, const Plan& plan, const Beneath& beneath);

// Model FLOPs of one step's forward and backward, recomputation not counted: three times forward's.
double model_flops(const Program& program);
// The same of one repetition of a segment.
double segment_flops(const Program& program, Id segment);

}  // namespace prun
