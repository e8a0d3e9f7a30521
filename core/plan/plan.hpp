// A rank's plan: where every byte lies and what is called in which order. Everything is decided here, before
// anything runs; the executor only carries it out and the simulator only times it.
//
// A function is planned once per segment, with addresses relative to what a call brings: the segment's
// repetition (instance), a microbatch's slot, the side of the double-buffered staging area. A call names
// them.
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
  std::int32_t delay = -1;  // of instances with that delay; -1: of all
  Numbered<PlannedStep> steps;
  Numbered<Piece> pieces;
  Region scratch = Region::scratch;           // where that of its values lies that nobody reads after it
  std::vector<std::int64_t> scratch_bytes;    // by range of the layout
  std::vector<std::int64_t> workspace_bytes;  // likewise, of kernels' workspaces that lie apart
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
  std::int32_t delay = 0;  // how many updates old the parameters are that its passes read
  // Such a stub that stands for a segment in front of all that this rank holds: no more of it is here than
  // what it carries, and the gradient of that.
  bool carried_stub = false;
};

struct Wait {
  std::int32_t queue = 0;
  std::int32_t call = 0;       // position within that queue's calls of a step
  std::int32_t steps_ago = 0;  // rounds: 0: this one's, 1: the one before
};

// Where a round stands in a row of steps that overlap. Its calls stand as they do while steps follow each
// other: the last ones of steps before (Call::behind) between the first ones of this step. In the first
// rounds of a row there are not as many steps before, and in the last ones none begins.
struct Round {
  static constexpr std::int32_t many = 255;
  std::int32_t before = many;  // rounds of its row in front of it; more are as `many`
  std::int32_t ended = 0;      // 0: a step begins with it; else how many rounds ago the last one did

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
  std::int32_t microbatch = -1;  // -1: not of a microbatch
  std::int32_t slot = 0;
  std::int32_t stub_slot = 0;     // of the receive stub it is for, or reads from
  std::int32_t carried_slot = 0;  // of what is carried
  std::int32_t queue = 0;
  std::int32_t position = 0;  // within its queue
  std::int32_t behind = 0;    // how many steps before the one that the round is of
  // It runs in rounds with so many in front of them, of those that have its step; in the others it waits and
  // does nothing.
  std::uint8_t from = 0, to = Round::many;
  // By step: KernelArgs::first. Empty: no sum begins with this call.
  std::vector<std::uint32_t> first;

  std::uint32_t first_of(std::size_t step) const { return first.empty() ? 0 : first[step]; }
  bool runs_in(Round round) const {
    return round.ended <= behind && from <= round.before && round.before <= to;
  }
  std::vector<Wait> waits;
  // While a save is under way, the call waits for this one of its reads as well; -1: for none.
  std::int32_t save_read = -1;
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

// A value that outlives the step, of one instance.
struct PersistentValue {
  Id value = none;
  std::int32_t instance = 0;

  friend auto operator<=>(const PersistentValue&, const PersistentValue&) = default;  // NOLINT: no null in it
};
// A call of the saver's queue: all values of which the same call is the first of a step to write.
using SaveRead = std::vector<PersistentValue>;

struct Plan {
  Numbered<PlannedFunction> functions;
  Numbered<Instance> instances;
  std::vector<Call> calls;  // a valid order; each queue runs its own in this order
  Numbered<QueueInfo> queues;
  Numbered<Chunk> chunks;
  std::int64_t microbatches = 1;
  std::int64_t input_slots = 2;
  std::int64_t carried_slots = 0;  // microbatches of what is carried that are here at once
  std::int64_t lanes = 1;          // microbatches that go through the chain side by side
  bool overlaps = false;           // a step begins before the one before it ends
  // Steps that have what is staged, inputs and numbers of their own; of these, as many have microbatches at
  // work, boundaries that come from elsewhere, and gradients.
  std::int32_t sides = 2, slot_sides = 1, stub_sides = 1, gradient_sides = 1;
  std::int32_t running = 2;  // steps that may run at a time, on all ranks alike
  // The saver's queue, whose calls run once a save and not once a step, beside the steps that follow it: in
  // the order in which a step overwrites what they read. Empty: a save is read while no step runs.
  Numbered<SaveRead> save_reads;
  Layout layout;
  Homes homes;
  // Where this rank stands on each axis: all that ranks with the same plan do not share.
  std::vector<std::int64_t> coordinates;
  std::vector<std::int64_t> extents;  // of the axes

  std::span<const PlannedStep> steps(const Call& call) const;
  // The instance where what a segment carries lies: its own, or what stands for it; -1: nothing of it is
  // here.
  std::int32_t carrier_of(Id segment) const;
  // The function of that kind of the instance's segment, or -1.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const;

  // Which of the parts of a flat range is meant, by where this rank stands, and how many there are; 0 and 1
  // where it is not in parts.
  std::int64_t part_of(const Address& address) const;
  std::int64_t parts_of(const Address& address) const;
  // Throws for what only a function has.
  const Address& home(Id value) const;
  // Which of the sides a step has.
  int side_of(std::int64_t step) const { return static_cast<int>(step % sides); }
  // How many rounds after its own a step's last call comes.
  std::int32_t depth() const;
  // Where an address lies for a call; side is that of the step that the round is of.
  std::int64_t resolve(const Call& call, const Address& address, int side) const;
  // Where a home lies that is no microbatch's.
  std::int64_t resolve(std::int32_t instance, const Address& home) const;
  // The read of a save that a value belongs to; 0 where there are none.
  std::int32_t save_read_of(const PersistentValue& value) const;
  // Of a call's microbatch, which is of a step of that side.
  std::int64_t input_slot_of(const Call& call, int side) const;
  // Which of two buffers has what is saved elsewhere, on its way: those that follow each other differ, be it
  // in a pass or, where an instance has all microbatches before the next one has, in the row of passes.
  std::int64_t turn_of(std::int32_t instance, std::int32_t slot) const {
    const bool alone = chunks.size() + 1 >= instances.size();
    const std::int64_t before_the_next = lanes > 1 ? lanes : microbatches;
    return (instance * (alone ? before_the_next : 1) + slot) % 2;
  }
};

}  // namespace prun
