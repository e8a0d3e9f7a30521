// A rank's plan: the address of every byte, and all calls of a step in order. Everything is decided here
// before anything runs; the executor only carries it out, and the simulator only times it.
//
// A function is planned once per segment. Its addresses are relative to what a call names: the layer
// (instance), the microbatch's slot, the staging buffer. Example: call {forward of block, instance 3,
// microbatch 1, slot 1} in queue 0 waits for call 12 of queue 4, the all-gather of layer 3's parameters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "plan/arena.hpp"
#include "program/step_program.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

namespace prun {

enum class Whose : std::uint8_t {
  own,       // memory of the instance the call is for
  previous,  // memory of the instance before it in the chain
  fixed,     // memory of `instance`
};

struct Address {
  Region region = Region::scratch;
  Whose whose = Whose::own;
  std::int32_t instance = -1;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  AxisId part_axis = no_axis;  // axis of the rank's own part of a flat range, by its coordinate there
  std::int32_t range = 0;      // number of the range in the layout
};

// Says where values lie that outlive the function that writes them. All others are scratch, at the addresses
// in a function's own steps.
using Homes = std::map<Id, Address>;

struct PlannedOperand {
  Id value = none;  // none if it is absent
  Address address;
};

// Describes an exchange for a comm plugin: `in` and `out` are the same if it works in place.
struct PlannedExchange {
  CommKind kind = CommKind::barrier;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  std::int64_t count = 0;  // number of elements
  std::int32_t peer = -1;  // member that the exchange sends to or receives from
  Address in, out;
  // The exchange takes so many operations, each on the elements behind those of the one before.
  std::int64_t pieces = 1;
  // If it is not 0, members send and receive pieces among each other, which shift by so many places
  // (plan/shifted.hpp); with `chunks`, they lie in the order of prun/sequence_order.hpp.
  std::int64_t distance = 0, chunks = 0;

  // Says whether it is between one member that sends and one that receives.
  bool is_between_two() const { return (kind == CommKind::send || kind == CommKind::recv) && distance == 0; }
};

// Describes bytes beside an operand or the workspace of a step, which its kernel must leave alone.
struct Fence {
  Address bytes;
  std::int32_t operand = -1;  // number of the operand; -1: the workspace
  bool before = false;        // whether it lies in front, rather than behind
};

struct PlannedStep {
  Id op = none;                    // none for a transfer between stages
  Kernel kernel = nullptr;         // null for an exchange
  std::int32_t device = 0;         // device of the kernel
  std::uint32_t writes_first = 0;  // bits of the kernel: see KernelDef
  std::optional<PlannedExchange> exchange;
  std::vector<Id> also;  // further ops whose exchange this one includes
  std::vector<PlannedOperand> operands;
  Address workspace;
  std::vector<Address> dead_after;  // bytes that are not read again once this step is done
  std::vector<Fence> fences;        // fences of a kernel, if the plan has any
};

// Names steps [first, last) of a function, all for one queue: this is what a call runs.
struct Piece {
  std::int32_t first = 0, last = 0;
  std::int32_t queue = 0;
};

// Names a function's piece, for one instance.
struct InstancePiece {
  std::int32_t function = 0, piece = 0, instance = 0;

  friend bool operator==(const InstancePiece&, const InstancePiece&) = default;
};

struct PlannedFunction {
  Id segment = none;
  FunctionKind kind = FunctionKind::forward;
  std::int32_t delay = -1;  // delay of its instances; -1: it is for all
  Numbered<PlannedStep> steps;
  Numbered<Piece> pieces;
  Region scratch = Region::scratch;           // region of its values that are not read after it
  std::vector<std::int64_t> scratch_bytes;    // scratch by range of the layout
  std::vector<std::int64_t> workspace_bytes;  // bytes of kernels' workspaces that lie apart, likewise
  OpCost cost;
  bool uses_batch = false;   // whether addresses depend on the staging side
  bool uses_inputs = false;  // whether addresses depend on the microbatch's input slot
  // A function that the planner made does these pieces at once, for several instances. Segment and instance
  // of its calls are the first one's.
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

// Describes one repetition of a segment.
struct Instance {
  Id segment = none;
  std::int64_t layer = 0;
  HeldPart held = HeldPart::whole;
  std::int32_t delay = 0;  // how many updates old the parameters are that its passes read

  bool is_stub() const { return held != HeldPart::whole; }
};

struct Wait {
  std::int32_t queue = 0;
  std::int32_t call = 0;       // position in that queue's calls of a step
  std::int32_t steps_ago = 0;  // number of rounds: 0: this one, 1: the one before
};

// Says where a round stands in a row of steps that overlap. Its calls stand as they do while steps follow
// each other: the last ones of steps before (Call::behind) between the first ones of this step. In the first
// rounds of a row there are not as many steps before, and in the last ones none begins.
struct Round {
  static constexpr std::int32_t many = 255;
  std::int32_t before = many;  // number of rounds of its row before it; more count as `many`
  std::int32_t ended = 0;      // 0 if a step begins with it; otherwise how many rounds ago the last one did

  static const Round beginning, going_on, ending;
  friend bool operator==(const Round&, const Round&) = default;
};
inline constexpr Round Round::beginning{0, 0};
inline constexpr Round Round::going_on{many, 0};
inline constexpr Round Round::ending{many, 1};

struct Call {
  std::int32_t function = 0;
  std::int32_t piece = 0;
  std::int32_t instance = 0;
  std::int32_t microbatch = -1;  // -1 if it is for no microbatch
  std::int32_t slot = 0;
  std::int32_t stub_slot = 0;     // slot of the receive stub that it is for, or reads from
  std::int32_t carried_slot = 0;  // slot of what is carried
  std::int32_t queue = 0;
  std::int32_t position = 0;  // position in its queue
  std::int32_t behind = 0;    // number of steps that its step is before the round's
  // The call runs in rounds with so many before them, of those that have its step; in the others it waits and
  // does nothing.
  std::uint8_t from = 0, to = Round::many;
  // These are KernelArgs::first by step. If they are empty, no sum begins with this call.
  std::vector<std::uint32_t> first;

  std::uint32_t first_of(std::size_t step) const { return first.empty() ? 0 : first[step]; }
  bool runs_in(Round round) const {
    return round.ended <= behind && from <= round.before && round.before <= to;
  }
  std::vector<Wait> waits;
  // The call is left out if this one is done when its queue comes to it (FunctionKind::speculate).
  std::optional<Wait> unless;
  // While a save is under way, the call waits for this one of its reads as well; -1 means none.
  std::int32_t save_read = -1;
};

enum : std::int32_t { compute_queue = 0, copy_queue = 1 };  // queues of device 0

// Describes a queue. Each communicator has a queue of its own: exchanges that should overlap have different
// ones.
struct QueueInfo {
  std::string name;
  bool workers = false;
  AxisId axis = no_axis;  // axis of the mesh whose groups it connects; no_axis: it does not communicate
  std::int32_t calls = 0;
  std::int64_t peer = -1;  // coordinate of the only peer that it connects; -1: it connects all
  std::int32_t device = 0;

  bool communicates() const { return axis != no_axis; }
  // Returns the ranks that it connects, in order.
  std::vector<int> members(const Mesh& mesh, std::int64_t rank) const;
};

// Describes a stage as its rank runs it.
struct Chunk {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // numbers of instances
  std::int32_t stub = -1;            // instance before the first one; -1: nothing comes from elsewhere
  // The chunk goes on where the chunk of this number ends, on the same rank; -1: it does not.
  std::int32_t follows = -1;
  std::int32_t slots = 1;  // microbatches of it that are alive at once; a receive stub has one slot more
  // These functions receive and send; -1: there is no such neighbour.
  std::int32_t receive = -1, send = -1, receive_gradient = -1, send_gradient = -1;
};

// Names a value that outlives the step, of one instance.
struct PersistentValue {
  Id value = none;
  std::int32_t instance = 0;

  friend auto operator<=>(const PersistentValue&, const PersistentValue&) = default;  // NOLINT: no null in it
};
// Holds a call of the saver's queue: all values of which the same call is the first of a step to write.
using SaveRead = std::vector<PersistentValue>;

struct Plan {
  Numbered<PlannedFunction> functions;
  Numbered<Instance> instances;
  std::vector<Call> calls;  // calls in a valid order; each queue runs its own in this order
  Numbered<QueueInfo> queues;
  Numbered<Chunk> chunks;
  std::int64_t microbatches = 1;
  std::int64_t input_slots = 2;
  std::int64_t carried_slots = 0;  // most microbatches whose carried values are here at once
  std::int64_t lanes = 1;          // microbatches that go through the chain side by side
  bool overlaps = false;           // whether a step begins before the one before it ends
  // These count the copies of memory that exist because steps overlap: of what is staged (inputs and numbers
  // too), of slots, of boundaries from another rank, of gradients. A step uses copy number step % n.
  std::int32_t staging_copies = 2, slot_copies = 1, received_copies = 1, gradient_copies = 1;
  std::int32_t running = 2;  // most steps that may run at a time, on all ranks alike
  // These are the calls of the saver's queue, which run once a save and not once a step, beside the steps
  // that follow it: in the order in which a step overwrites what they read. If they are empty, a save is read
  // while no step runs.
  Numbered<SaveRead> save_reads;
  Layout layout;
  Homes homes;
  // This says where the rank stands on each axis: ranks with the same plan differ in nothing else.
  std::vector<std::int64_t> coordinates;
  std::vector<std::int64_t> extents;  // extents of the axes

  std::span<const PlannedStep> steps(const Call& call) const;
  // Returns the instance where what a segment carries lies: its own, or a stub that stands for it; -1: none
  // of it is here.
  std::int32_t carrier_of(Id segment) const;
  // Returns the function of that kind of the instance's segment, or -1.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const;

  // Returns which part of a flat range is meant, by where this rank stands; the next function returns how
  // many there are. They return 0 and 1 for an address that is not in parts.
  std::int64_t part_of(const Address& address) const;
  std::int64_t parts_of(const Address& address) const;
  // Returns a value's home; throws for a value that only a function has.
  const Address& home(Id value) const;
  // Returns which copy of what is staged a step uses, its side.
  int side_of(std::int64_t step) const { return static_cast<int>(step % staging_copies); }
  // Returns the side of a call's step; `side` is that of the step that the round is of.
  int side_of(const Call& call, int side) const {
    return (side + staging_copies - call.behind % staging_copies) % staging_copies;
  }
  // Returns how many rounds after its own a step's last call comes.
  std::int32_t depth() const;
  // Returns where an address lies for a call; side is that of the step that the round is of.
  std::int64_t resolve(const Call& call, const Address& address, int side) const;
  // Returns where a home lies that belongs to no microbatch.
  std::int64_t resolve(std::int32_t instance, const Address& home) const;
  // Returns the read of a save that a value belongs to, or 0 if there are none.
  std::int32_t save_read_of(const PersistentValue& value) const;
  // Returns the input slot of a call's microbatch, which is of a step of that side.
  std::int64_t input_slot_of(const Call& call, int side) const;
  // Returns which of two buffers has what is saved elsewhere, on its way: those that follow each other
  // differ, either in a pass or, where an instance has all microbatches before the next one has, in the row
  // of passes.
  std::int64_t turn_of(std::int32_t instance, std::int32_t slot) const {
    const bool alone = chunks.size() + 1 >= instances.size();
    const std::int64_t before_the_next = lanes > 1 ? lanes : microbatches;
    return (instance * (alone ? before_the_next : 1) + slot) % 2;
  }
};

}  // namespace prun
