// SPDX-License-Identifier: Apache-2.0
// Writing and rewriting a step's program from a plugin: handles over out-of-line calls into the core.
//
// A program is a chain of segments (embedding, block x layers, head). Each segment holds functions: lists of
// ops over named values. Models write the `forward` functions over whole tensors; the core derives the rest;
// strategies look at everything and edit it. The core checks every edit and raises an Error that names it.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "prun/foreign.hpp"
#include "prun/op.hpp"
#include "prun/placement.hpp"

namespace prun {

enum class FunctionKind : std::uint8_t {
  load,    // step segment: loads a microbatch's tokens
  begin,   // step segment: resets what a step accumulates
  zero,    // clears gradient accumulators
  gather,  // all-gathers sharded parameters
  clear,   // clears gradients that ranks reduce several times a step, before each time
  forward,
  backward,          // input gradients; weight gradients too unless the program splits backward
  backward_weight,   // weight gradients, if the program splits backward
  reduce,            // sums partial gradients over the ranks
  norm,              // sums the squares of the gradients
  finish,            // step segment: computes global norm, clip factor, keep
  diagnose,          // if keep is 0: finds the parameters whose gradients are not finite
  update,            // optimizer
  report,            // step segment: copies losses and norms to the host
  tie,               // sums the gradients of a parameter that two pipeline stages share
  send,              // made by the planner between pipeline stages: sends a layer's output,
  receive,           // receives it,
  send_gradient,     // sends the gradient of the input back to the previous stage,
  receive_gradient,  // and receives that
  put_away,          // made by the planner: offloads activations that backward reads,
  bring_back,        // and prefetches them
  renew,             // refreshes the secondary copies of parameters (Sharded::secondary)
  periodic,          // runs after `update`, once per period (ProgramApi::periodic)
  // For layers whose update need not wait for `finish`. `speculate` runs as soon as their gradients are
  // complete, unless `finish` has run by then; `settle` takes the place of `update`: it completes the update,
  // or undoes it and updates again. Only `speculate` and `settle` have what `speculate` writes. A runtime
  // number that `settle` writes is what the step before left to `speculate`.
  speculate,
  settle
};
inline constexpr int function_kinds = 25;

constexpr const char* name_of(FunctionKind kind) {
  constexpr const char* names[] = {"load",
                                   "begin",
                                   "zero",
                                   "gather",
                                   "clear",
                                   "forward",
                                   "backward",
                                   "backward_weight",
                                   "reduce",
                                   "norm",
                                   "finish",
                                   "diagnose",
                                   "update",
                                   "report",
                                   "tie",
                                   "send",
                                   "receive",
                                   "send_gradient",
                                   "receive_gradient",
                                   "put_away",
                                   "bring_back",
                                   "renew",
                                   "periodic",
                                   "speculate",
                                   "settle"};
  return names[static_cast<int>(kind)];
}

enum class Role : std::uint8_t {
  activation,
  parameter,
  gradient,  // accumulator of a parameter's gradient
  state,     // optimizer state: master copy, moments
  input,     // tokens, targets, sample numbers of one microbatch
  runtime,   // scalar that changes from step to step: learning rate, norm, keep, ...
  staging,   // host memory for `load` and `report`
  view,      // several parameters or gradients, one after another, as one flat value
  fetched,   // copy of an offloaded parameter, in device memory while it is used
};

struct ValueInfo {
  Role role = Role::activation;
  DType dtype = DType::f32;
  Id segment = none;
  std::int32_t rank = 0;
  Dim dims[max_dims] = {};
  bool frozen = false;
  bool decay = false;
  double lr_scale = 1;
  Text name;           // the name lives as long as the program
  Id gradient = none;  // accumulator of a trained parameter's gradient
  bool part = false;   // a parameter: a part of one of the model's tensors, whose rest is in others
  // A parameter of which ranks have shards, which they gather before each use.
  bool gathered = false;
};

struct OpInfo {
  Text kind;
  Id segment = none;
  FunctionKind function = FunctionKind::forward;
  Part part = Part::input;
  Array<Id> operands;          // the array lives until the next edit
  const OpDef* def = nullptr;  // the definition lives as long as the program
};

// Shows all values and ops at once, for a strategy that reads the whole program. Ops come segment by segment,
// function by function, in their order.
struct ProgramView {
  struct Value {
    Id id = none;
    ValueInfo info;
    Array<Lies> lies;  // for each axis of several ranks; empty before phase `placed`
  };
  struct Op {
    Id id = none;
    OpInfo info;
  };
  Array<Value> values;
  Array<Op> ops;
};

// Describes the step that the program computes.
struct StepContext {
  bool training = true;  // otherwise it evaluates or generates text
  bool text = false;     // it generates text, position by position
  std::int64_t microbatches = 1;
  DType compute = DType::f32, master = DType::f32, moments = DType::f32, gradient = DType::f32,
        reduce = DType::f32;  // as [precision] says
  // Hold the bits per element of quantized data (prun/block_codes.hpp) if parameters are gathered, or
  // gradients are reduced, quantized; 0: they are not.
  std::int64_t gather_bits = 0, reduce_bits = 0;
  bool gather_fp8 = false;  // whether parameters are gathered in fp8
  // Updates wait for the norm of all gradients, and take gradients as they are if it is within this limit;
  // infinite: the norm need only be finite. 0: updates wait for nothing, or always multiply by a factor.
  double norm_limit = 0;
  // Positions of a chunk of a sequence, if ranks have chunks that are not in order; else 0. It is known
  // behind phase `shard`.
  std::int64_t sequence_chunk = 0;
};

struct SegmentInfo {
  Text name;
  std::int64_t repeat = 1;
  // Hold the segment's input from the previous segment and its output to the next one, and their gradients,
  // which flow the other way; none: it does not exist, or not yet.
  Id incoming = none, outgoing = none;
  Id incoming_gradient = none, outgoing_gradient = none;
};

// Says what a segment's backward recomputes instead of saving it in forward.
enum class RecomputeMode : std::uint8_t {
  nothing,
  full,    // everything that follows from the segment's input
  ops,     // results of ops of the given kinds
  budget,  // as much as the planner needs to make the plan fit the device's memory
};

// Says which part of each sequence a rank has.
enum class SequenceBalance : std::uint8_t {
  in_order,  // contiguous parts, in the order of ranks
  zigzag,    // a chunk from the front and one from the back, which is equal work for all under a causal mask
};

// Says how sequences are split over the ranks of an axis.
struct SequenceShares {
  SequenceBalance balance = SequenceBalance::zigzag;
  // Number of pieces along `heads` in which ops that read all positions get them gathered: one piece is
  // gathered while they compute on the one before.
  std::int64_t pieces = 1;
};

// Says what is sharded in addition to optimizer state.
struct Sharded {
  // If set, gradients are reduced whenever no microbatch has contributed only a part to them, otherwise once
  // a step.
  bool gradients = false;
  bool parameters = false;  // if set, they are gathered before each use
  // Names the last of the axes that parameters are sharded over: their ranks hold a secondary copy of the
  // parameters, sharded among them, from which each use gathers. Empty: there is none.
  Array<Text> secondary = {};
};

// Describes a flat parameter: parameters of a segment with the same update rule, concatenated in one buffer.
// Each rank has an equal shard of its optimizer state and, if requested, of its gradients and parameters. The
// full buffer and a rank's shard are [ranks, elements / ranks] and [elements]; where the full buffer is kept,
// the shard is a part of it.
struct FlatParameter {
  Id segment = none;
  Array<Id> members;
  Array<std::int64_t> offsets;  // where each member begins, in elements
  std::int64_t elements = 0;    // those of all ranks, padding included
  Array<Text> axes;             // each of their ranks has a shard
  AxisInfo ranks;               // the same, as one axis
  // With a secondary copy, the ranks of `within` hold one among them, refreshed over the ranks of `across`;
  // `parameters` is then [across, elements / across]. Without one, the number of both is -1.
  AxisInfo within, across;
  Id parameters = none, own_parameters = none;
  Id gradients = none, own_gradients = none;  // none: the parameters are frozen
  // The rank's shard within `gradients`, if gradients are sharded and reduced in their own type.
  Id own_sum = none;
  // If a strategy declared codes of its members (ProgramApi::gather_as), `codes` are gathered instead. That
  // strategy writes a rank's own in `renew`, and has ops read the members' codes.
  Id codes = none, own_codes = none;
  Array<Id> member_codes;
  bool shards_gradients = false, shards_parameters = false;
  bool quantized =
      false;  // whether parameters or gradients travel in codes, where StepContext says that any do
  // Lists axes whose all-reduces of the gradients were removed: the shard has yet to be summed over them.
  Array<AxisInfo> summed;
};

// Says how long a flat buffer is kept.
enum class BufferLifetime : std::uint8_t {
  function,  // until the last op of its function that uses it
  use,       // until the use that its parameters are gathered for
  run,       // from step to step
};

// Describes an additional buffer of a flat parameter: a copy that some ranks hold, or quantized data.
struct FlatBuffer {
  Text name;       // unique among the buffers of the flat parameter
  Id like = none;  // the flat parameter's buffer whose dimensions it has, but for the elements
  DType dtype = DType::u8;
  std::int64_t elements = 0;
  AxisInfo ranks = {};      // each of them has a shard; number -1: as `like`
  bool replicated = false;  // each rank has all of it, along one dimension
  BufferLifetime lifetime = BufferLifetime::function;
};

// Describes a value that ops of a strategy write. It is placed as another one: where that is sharded along a
// dimension, this one has that dimension too.
struct AddedValue {
  Text name;
  Id like = none;
  DType dtype = DType::u8;
  Array<Dim> dims;
  // Ops of `gather` write it, and it is kept until the use that they run for. Otherwise it is an activation.
  bool fetched = false;
};

// Names a value of a segment that is quantized, and says how many layers have one.
struct CountedValue {
  Text name;
  std::int64_t layers = 1;
};

// Describes what ops of a strategy count of quantized values in one step of `every`. There is a row for each
// layer of each value, in their order. The ops add to `counts` how many numbers are not zero, how many of
// these become zero, and how many become subnormal; they raise `peaks` to the largest magnitude, the largest
// exponent of a scale as fp32 has it, and 255 - the smallest. Ranks add theirs up, so that what several of
// them have alike counts several times: prun reports shares, magnitudes and exponents, and warns once if the
// share that becomes zero is larger than `bound`.
struct QuantizationCounts {
  Text name;  // begins the names of what the call adds: "fp8"
  Array<CountedValue> values;
  std::int64_t every = 1;
  double bound = 1;
  // The call fills these in: `on` is 0 in steps that do not count, the others are fp64 [rows, 3].
  Id on = none, counts = none, peaks = none;
};

// Assigns to a place a share, in percent of the bytes, of the activations that a segment saves for backward.
struct SavedShare {
  MemoryPlace place;
  std::int32_t percent = 100;
};

// Says where a requested split of a dimension over an axis applies.
enum class SplitScope : std::uint8_t {
  everywhere,
  // The axis splits the dimension in parameters and ops, as one choice among several; the inputs of a
  // microbatch, and counts over them, follow the first request with another scope.
  weights,
  // The axis splits the dimension in ops only; parameters stay unsharded. An op uses it if it needs another
  // dimension unsharded on which an operand is sharded, and the next op that can returns to that one.
  ops,
};

struct ParameterSpec {
  Text name;
  Array<Dim> dims;
  Init init;
  bool decay = false;  // whether weight decay applies (matrices)
};

// Describes a parameter as a batch of matrices, for optimizers that update each matrix as a unit. Its
// dimensions are, in this order, those that index matrices, rows, and columns.
struct Matrices {
  std::int32_t batch = 0;    // number of leading dimensions that index matrices
  std::int32_t columns = 0;  // number of trailing dimensions that index columns; 0: it is no matrix
  // Cuts the first row dimension at these indices into separate matrices. 0: no more cuts.
  std::int64_t cuts[3] = {};
};

// Describes a low-rank adapter: two small matrices trained in place of a frozen weight. The strategy writes
// their ops, so that the model computes as if the weight were weight + factor * up * down. Checkpoints,
// exports and Hugging Face weights rely on this.
struct LowRank {
  Id weight = none;
  Id down = none;  // [rank, the dimensions that the weight sums over: its last ones]
  Id up = none;    // [the weight's other dimensions, rank]
  // `up` covers only elements [begin, end) of this one of the weight's other dimensions; if it is empty, `up`
  // covers all.
  Text part;
  std::int64_t begin = 0, end = 0;
  double factor = 1;
  double dropout = 0;  // probability that training drops an element of the input of `down`
};

// Describes a state that follows a parameter from update to update, such as an average of its weights. It has
// the parameter's dimensions and the type in which gradients are summed, begins as zeros, and is sharded,
// placed and saved as the optimizer's own states are.
struct UpdatedState {
  Text name;  // checkpoints have it as PARAMETER.name
  // Kind of the op that changes it behind each update, with its attributes. Its operands are the parameter,
  // the master weights if there are any, the state, the number of the update, and 0 if that must be skipped;
  // it must treat all elements alike.
  Text op;
  Array<AttrValue> attrs;
  bool evaluated = false;  // whether evaluation during training also runs with it in place of the weights
};

// Holds the core's functions behind ProgramRef: every call is checked and reports what was wrong.
struct ProgramApi {
  std::uint64_t struct_size;
  Status (*segment)(void* program, Text name, std::int64_t repeat, Id* result);
  Status (*parameter)(void* program, Id segment, const ParameterSpec* spec, Id* result);
  Status (*tie)(void* program, Id segment, Id parameter, Id* result);
  Status (*input)(void* program, Id segment, Text name, Id* result);
  Status (*runtime)(void* program, Text name, Id* result);
  Status (*incoming)(void* program, Id segment, Id* result);
  Status (*outgoing)(void* program, Id segment, Id value);
  // Inserts an op before `before`, an op of that function, or at the end if that is none. Outputs (operands
  // the op writes) are created and returned in order. With all operands given, in the order of the op's
  // definition, it writes values that exist, and none are created.
  Status (*op)(void* program, Id segment, FunctionKind function, Id before, Text kind, Array<Id> inputs,
               Array<AttrValue> attrs, Id* outputs, std::uint64_t output_count);
  Status (*replace_operand)(void* program, Id op, std::int32_t index, Id value);
  Status (*erase)(void* program, Id op);
  Status (*set_attr)(void* program, Id op, Text name, double value);
  Status (*get_attr)(void* program, Id op, Text name, double* value);
  Status (*set_parameter)(void* program, Id value, bool frozen, bool decay, double lr_scale);
  Status (*value_info)(void* program, Id value, ValueInfo* info);
  Status (*op_info)(void* program, Id op, OpInfo* info);
  Status (*segment_info)(void* program, Id segment, SegmentInfo* info);
  std::uint64_t (*segment_count)(void* program);
  // Lists ops of one function in order; the array is valid until the next edit. A device that lowers the
  // program is shown no functions that another device runs.
  Status (*ops)(void* program, Id segment, FunctionKind function, Array<Id>* result);
  Status (*values)(void* program, Id segment, Array<Id>* result);
  // Phase `shard`: splits dimension `dim` over a mesh axis wherever the ops allow it; the core derives the
  // placement of every value and the collectives needed. If several dimensions are requested for one axis,
  // each op and parameter takes the first that it can, and a microbatch's inputs only the very first. If the
  // same is requested several times, the widest scope counts.
  Status (*split)(void* program, Text dim, Text axis, SplitScope scope);
  // Phase `state`: shards optimizer state, and what `what` adds, over these axes together. At the end of the
  // phase, parameters with the same update rule form flat parameters, sharded over those of the axes that sum
  // their gradients; over the others they must be sharded already. The strategy that calls this writes the
  // collectives of all flat parameters in phase `collectives`.
  Status (*shard_state)(void* program, Array<Text> axes, Sharded what);
  // Phase `memory`: says what backward recomputes instead of saving it in forward. `kinds` is for mode `ops`
  // only.
  Status (*recompute)(void* program, Id segment, RecomputeMode mode, Array<Text> kinds);
  // Phase `partition`: splits the layer sequence into pipeline stages, `chunks` for each rank of an axis,
  // which run in the order of a schedule plugin. `layers` gives the number of layers of each stage, first to
  // last, with embedding and head counted; on an axis of one rank it may be empty.
  Status (*pipeline)(void* program, Text axis, Text schedule, std::int32_t chunks,
                     Array<std::int64_t> layers);
  // Replaces an op by another one on existing values: `operands` are all, in the order of its definition. No
  // op may still read results of the old op that the new one does not write.
  Status (*replace_op)(void* program, Id op, Text kind, Array<Id> operands, Array<AttrValue> attrs);
  // Phase `memory`: gives each rank one more device in addition to the recipe's, which is number 0. Values
  // are stored in spaces of devices. Each function of a segment runs on one device, which must reach all
  // operands of its ops; a `copy` runs on a device that reaches both places. Device 0 runs collectives, and
  // its own memory holds what segments pass to each other. A parameter stored elsewhere is fetched before
  // each use, and a gradient leaves as soon as it is complete: the core adds these moves at the end of the
  // phase. The place of a sharded value is the place of each rank's shard.
  Status (*device)(void* program, Text plugin, std::int32_t* number);
  Status (*place)(void* program, Id value, MemoryPlace place);
  Status (*run_on)(void* program, Id segment, FunctionKind function, std::int32_t device);
  // Says whether an op that is not shown reads or writes the value.
  Status (*used_elsewhere)(void* program, Id value, bool* used);
  // Chooses one of several options, described in words, cheapest first: the first one with which the plan
  // fits in memory. The planner rewrites the program for each and skips those that are refused. If several
  // strategies call this, they advance to the next option together.
  Status (*choose_to_fit)(void* program, Array<Text> ways, std::uint64_t* chosen);
  // Phase `memory`: says where activations saved for the segment's backward are stored in between. They are
  // offloaded as forward proceeds and prefetched before their backward. The percentages of the places add up
  // to 100. Whole values are assigned, the largest first, each to the place that lacks most. The share of the
  // recipe's device stays in its own memory.
  Status (*share_saved)(void* program, Id segment, Array<SavedShare> shares);
  // Adds a device as `device` does, but only a tier (DeviceInfo::tier), by its plugin's name.
  Status (*tier)(void* program, Text plugin, std::int32_t* number);
  // Lists the plugins of the tiers that the recipe has tables for, [tier.NAME], in its order; the array is
  // valid until the next edit. A strategy that calls this may use any of them, so that all of these tables
  // count as used.
  Status (*tiers)(void* program, Array<Text>* plugins);
  // Phase `model`: declares a parameter as a batch of matrices. Without this call it is no matrix.
  Status (*set_matrices)(void* program, Id parameter, const Matrices* matrices);
  Status (*matrices)(void* program, Id parameter, Matrices* matrices);
  // Adds state that persists between steps and that no optimizer updates. In phase `model` it is part of the
  // model, like a parameter without a gradient: ops of `update` may change it, and every rank has all of it.
  // From phase `placed` on it belongs to the strategy, is placed as described, and any op may change it.
  Status (*state)(void* program, Id segment, const KeptState* state, Id* result);
  // Adds a metric: an fp64 sum that ops of a segment's forward add to, with the segment's layers as its first
  // dimension. It is zero when a step begins and summed over all ranks from `finish` on; observers get it as
  // "segment.name".
  Status (*tally)(void* program, Id segment, Text name, Array<Dim> dims, Id* result);
  // Phase `model`: declares the parameters `down` and `up`, which the strategy has added, as an adapter of a
  // weight that it has frozen.
  Status (*low_rank)(void* program, const LowRank* change);
  // Returns the model's mapping of Hugging Face weights, so that weights can be named as that library names
  // them; it lives as long as the program.
  Status (*foreign_weights)(void* program, ForeignWeightsView* weights);
  // Phase `shard`: splits sequences over the ranks of an axis. Ops that read all of a sequence do so across
  // ranks (OpDef::across); if parts are not in order, ops with an operand `positions`, i32 [seq], get the
  // position of each element, and batches come in that order.
  Status (*share_sequence)(void* program, Text axis, SequenceShares shares);
  // Splits as `split` does, over an axis that may have more ranks than the dimension has parts: the further
  // ranks split dimension `within` of values that have both dimensions, and replicate values without
  // `within`.
  Status (*split_beyond)(void* program, Text dim, Text within, Text axis, SplitScope scope);
  // Phase `model`: lets ops of all later segments read a result of a segment that does not repeat, in
  // addition to what each segment passes to the next: see Segment::carry.
  Status (*carry)(void* program, Id segment, Id value);
  // Phase `collectives`: lists the flat parameters made by shard_state, segment by segment, for the strategy
  // that called it and for one that called gather_as; the array is valid until the phase is over.
  Status (*flat_parameters)(void* program, Array<FlatParameter>* list);
  // Phase `collectives`: adds a buffer to those of a flat parameter.
  Status (*flat_buffer)(void* program, const FlatBuffer* described, Id* value);
  // Phase `collectives`: makes a buffer a part of another one: the shard of that one which the rank has among
  // these ranks.
  Status (*lie_within)(void* program, Id shard, Id whole, AxisInfo ranks);
  // From phase `placed` on: returns the placement of a value on an axis. For a gradient's accumulator it is
  // the placement before `reduce` sums it. Values added in this phase have none yet.
  Status (*placement)(void* program, Id value, Text axis, Lies* lies);
  // Phase `state`: shards one dimension of a state, which was replicated on an axis, over this axis. The
  // strategy has to change the ops that read it. A request without effect is refused. In phase `collectives`
  // it does the same for results of ops that were added there.
  Status (*place_over)(void* program, Id value, const Lies* lies);
  // Shows all of the program at once; the arrays are valid until the next edit.
  Status (*view)(void* program, ProgramView* view);
  Status (*axis)(void* program, Text name, AxisInfo* axis);
  Status (*step_context)(void* program, StepContext* context);
  // Phase `shard`: lets parameters vary along an axis: each coordinate trains its own replica. All start
  // identical; then gradients and optimizer state are separate: no gradient is summed over the axis, and
  // `grad_squares` and what follows from it vary. What the host reads of a step must not vary: make ranks
  // agree on it in phase `placed`. Frozen parameters stay identical.
  Status (*vary)(void* program, Text axis);
  // From phase `placed` on: has the ops of `periodic` run in every step whose number, counted from 1, is a
  // multiple of `every`, whether that step's update is kept or not.
  Status (*periodic)(void* program, std::int64_t every);
  // From phase `placed` on: names the strategy's state that replaces a trained parameter in evaluation and in
  // checkpoints, under the parameter's name. It has the parameter's dimensions and placement, but is
  // replicated where that varies; every parameter that varies needs one.
  Status (*evaluate_with)(void* program, Id parameter, Id state);
  // Phase `model`: has the ops behind the one of forward that writes `by` read `by` in place of `value`, and
  // gives what they write the shapes that follow. What the segment hands on, or carries, must have its old
  // shape again when the phase is over.
  Status (*replace_value)(void* program, Id value, Id by);
  // Returns the shapes and attributes of an op as its rule sees them, results included: of whole values or,
  // from phase `placed` on, of a rank's parts. The attributes are valid until the next edit.
  Status (*shape)(void* program, Id op, bool local, OpShape* shape);
  // From phase `placed` on: adds a value, for ops that write existing ones.
  Status (*add_value)(void* program, const AddedValue* described, Id* value);
  // Phase `state`: if ranks have shards of this parameter and gather it for each use, they gather these codes
  // of it instead, in u8: see FlatParameter::codes.
  Status (*gather_as)(void* program, Id parameter, const AddedValue* codes);
  // Phase `placed`: counts what becomes of quantized values.
  Status (*count_quantized)(void* program, QuantizationCounts* counts);
  // From phase `shard` on: lists what `pipeline` counts as layers, embedding and head too, by the FLOPs of
  // forward and backward of one microbatch; the array is valid until the next call.
  Status (*layer_flops)(void* program, Array<double>* flops);
  // Phase `model`: has the recipe's optimizers keep one more state for each parameter that they update.
  Status (*optimizer_state)(void* program, const UpdatedState* state);
};

class Segment;

// This is a handle, cheap to copy; the core owns the program.
class ProgramRef {
 public:
  ProgramRef(const ProgramApi* api, void* program) : api_(api), program_(program) {}

  // Segments run in the order they are added; `repeat` makes a block of that many layers.
  Segment segment(std::string_view name, std::int64_t repeat = 1) const;

  std::vector<Segment> segments() const;
  ValueInfo value(Id id) const {
    ValueInfo info;
    raise(api_->value_info(program_, id, &info));
    return info;
  }
  OpInfo op(Id id) const {
    OpInfo info;
    raise(api_->op_info(program_, id, &info));
    return info;
  }
  double attr(Id op, const char* name) const {
    double value = 0;
    raise(api_->get_attr(program_, op, name, &value));
    return value;
  }
  void set_attr(Id op, const char* name, double value) const {
    raise(api_->set_attr(program_, op, name, value));
  }
  void replace_operand(Id op, int index, Id value) const {
    raise(api_->replace_operand(program_, op, index, value));
  }
  // Replaces an op by one of another kind on the same operands, with that kind's default attributes.
  void replace_kind(Id id, std::string_view kind) const {
    const Array<Id> operands = op(id).operands;
    raise(api_->replace_op(program_, id, kind, operands, {}));
  }
  void replace_op(Id op, std::string_view kind, std::initializer_list<Id> operands,
                  std::initializer_list<AttrValue> attrs = {}) const {
    raise(api_->replace_op(program_, op, kind, {operands.begin(), operands.size()},
                           {attrs.begin(), attrs.size()}));
  }
  void erase(Id op) const { raise(api_->erase(program_, op)); }
  void set_parameter(Id value, bool frozen, bool decay, double lr_scale) const {
    raise(api_->set_parameter(program_, value, frozen, decay, lr_scale));
  }
  Id runtime(std::string_view name) const {
    Id id = none;
    raise(api_->runtime(program_, name, &id));
    return id;
  }
  void split(std::string_view dim, std::string_view axis, SplitScope scope = SplitScope::everywhere) const {
    raise(api_->split(program_, dim, axis, scope));
  }
  AxisInfo axis(std::string_view name) const {
    AxisInfo info;
    raise(api_->axis(program_, name, &info));
    return info;
  }
  Lies placement(Id value, std::string_view axis) const {
    Lies lies;
    raise(api_->placement(program_, value, axis, &lies));
    return lies;
  }
  void place_over(Id value, const Lies& lies) const { raise(api_->place_over(program_, value, &lies)); }
  void vary(std::string_view axis) const { raise(api_->vary(program_, axis)); }
  void periodic(std::int64_t every) const { raise(api_->periodic(program_, every)); }
  void evaluate_with(Id parameter, Id state) const { raise(api_->evaluate_with(program_, parameter, state)); }
  void replace_value(Id value, Id by) const { raise(api_->replace_value(program_, value, by)); }
  OpShape shape(Id op) const { return shape(op, false); }
  OpShape local_shape(Id op) const { return shape(op, true); }
  Id add_value(const AddedValue& described) const {
    Id value = none;
    raise(api_->add_value(program_, &described, &value));
    return value;
  }
  void gather_as(Id parameter, const AddedValue& codes) const {
    raise(api_->gather_as(program_, parameter, &codes));
  }
  QuantizationCounts count_quantized(QuantizationCounts counts) const {
    raise(api_->count_quantized(program_, &counts));
    return counts;
  }
  std::vector<double> layer_flops() const {
    Array<double> flops;
    raise(api_->layer_flops(program_, &flops));
    return {flops.begin(), flops.end()};
  }
  void optimizer_state(const UpdatedState& state) const { raise(api_->optimizer_state(program_, &state)); }
  ProgramView view() const {
    ProgramView view;
    raise(api_->view(program_, &view));
    return view;
  }
  StepContext step_context() const {
    StepContext context;
    raise(api_->step_context(program_, &context));
    return context;
  }
  void shard_state(const std::vector<std::string>& axes, Sharded what) const {
    const std::vector<Text> texts(axes.begin(), axes.end());
    raise(api_->shard_state(program_, {texts.data(), texts.size()}, what));
  }
  Array<FlatParameter> flat_parameters() const {
    Array<FlatParameter> list;
    raise(api_->flat_parameters(program_, &list));
    return list;
  }
  Id flat_buffer(const FlatBuffer& described) const {
    Id value = none;
    raise(api_->flat_buffer(program_, &described, &value));
    return value;
  }
  void lie_within(Id shard, Id whole, AxisInfo ranks) const {
    raise(api_->lie_within(program_, shard, whole, ranks));
  }
  void pipeline(std::string_view axis, std::string_view schedule, std::int32_t chunks,
                const std::vector<std::int64_t>& layers) const {
    raise(api_->pipeline(program_, axis, schedule, chunks, {layers.data(), layers.size()}));
  }
  void share_sequence(std::string_view axis, SequenceShares shares) const {
    raise(api_->share_sequence(program_, axis, shares));
  }
  void split_beyond(std::string_view dim, std::string_view within, std::string_view axis,
                    SplitScope scope = SplitScope::everywhere) const {
    raise(api_->split_beyond(program_, dim, within, axis, scope));
  }
  std::int32_t device(std::string_view plugin) const {
    std::int32_t number = 0;
    raise(api_->device(program_, plugin, &number));
    return number;
  }
  std::int32_t tier(std::string_view plugin) const {
    std::int32_t number = 0;
    raise(api_->tier(program_, plugin, &number));
    return number;
  }
  std::vector<std::string> tiers() const {
    Array<Text> plugins;
    raise(api_->tiers(program_, &plugins));
    std::vector<std::string> names;
    for (const Text& plugin : plugins) names.emplace_back(plugin.view());
    return names;
  }
  void low_rank(const LowRank& change) const { raise(api_->low_rank(program_, &change)); }
  ForeignWeightsView foreign_weights() const {
    ForeignWeightsView weights{};
    raise(api_->foreign_weights(program_, &weights));
    return weights;
  }
  void place(Id value, MemoryPlace place) const { raise(api_->place(program_, value, place)); }
  bool used_elsewhere(Id value) const {
    bool used = false;
    raise(api_->used_elsewhere(program_, value, &used));
    return used;
  }
  std::size_t choose_to_fit(const std::vector<std::string>& ways) const {
    const std::vector<Text> texts(ways.begin(), ways.end());
    std::uint64_t chosen = 0;
    raise(api_->choose_to_fit(program_, {texts.data(), texts.size()}, &chosen));
    return chosen;
  }
  Matrices matrices(Id parameter) const {
    Matrices made;
    raise(api_->matrices(program_, parameter, &made));
    return made;
  }
  const ProgramApi& api() const { return *api_; }
  void* handle() const { return program_; }

 private:
  OpShape shape(Id op, bool local) const {
    OpShape shape;
    raise(api_->shape(program_, op, local, &shape));
    return shape;
  }

  const ProgramApi* api_;
  void* program_;
};

class Segment {
 public:
  Segment(ProgramRef program, Id id) : program_(program), id_(id) {}

  Id id() const { return id_; }
  ProgramRef program() const { return program_; }
  SegmentInfo info() const {
    SegmentInfo info;
    raise(api().segment_info(handle(), id_, &info));
    return info;
  }

  // Adds a matrix: weight decay applies to it.
  Id weight(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return parameter(name, {dims.begin(), dims.size()}, init, true);
  }
  Id weight(std::string_view name, const std::vector<Dim>& dims, Init init) const {
    return parameter(name, {dims.data(), dims.size()}, init, true);
  }
  // Declares a weight as a batch of matrices, for optimizers that update whole matrices; returns it.
  Id matrix(Id weight, const Matrices& made) const {
    raise(api().set_matrices(handle(), weight, &made));
    return weight;
  }
  // Adds a gain or a bias: weight decay does not apply to it.
  Id vector(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return parameter(name, {dims.begin(), dims.size()}, init, false);
  }
  // Adds state that persists between steps: see ProgramApi::state.
  Id state(const KeptState& state) const {
    return call([&](Id* r) { return api().state(handle(), id_, &state, r); });
  }
  // Adds a metric of each step, [layer, dims...]: see ProgramApi::tally.
  Id tally(std::string_view name, std::initializer_list<Dim> dims) const {
    return call([&](Id* r) { return api().tally(handle(), id_, name, {dims.begin(), dims.size()}, r); });
  }
  // Adds the same parameter as in another, unrepeated segment: they share storage, and gradients are summed.
  Id tie(Id parameter) const {
    return call([&](Id* r) { return api().tie(handle(), id_, parameter, r); });
  }

  Id tokens() const { return input("tokens"); }    // i32 [batch, seq]
  Id targets() const { return input("targets"); }  // i32 [batch, seq]; a negative target does not count
  Id samples() const { return input("samples"); }  // i64 [batch]: global sample numbers
  Id runtime(std::string_view name) const { return program_.runtime(name); }

  void recompute(RecomputeMode mode, const std::vector<std::string>& kinds = {}) const {
    const std::vector<Text> texts(kinds.begin(), kinds.end());
    raise(api().recompute(handle(), id_, mode, {texts.data(), texts.size()}));
  }

  void run_on(FunctionKind function, std::int32_t device) const {
    raise(api().run_on(handle(), id_, function, device));
  }
  void keep_saved(MemoryPlace place) const { share_saved({{place}}); }
  void share_saved(const std::vector<SavedShare>& shares) const {
    raise(api().share_saved(handle(), id_, {shares.data(), shares.size()}));
  }

  // Returns the previous segment's output; the next function sets this segment's output.
  Id incoming() const {
    return call([&](Id* r) { return api().incoming(handle(), id_, r); });
  }
  void outgoing(Id value) const { raise(api().outgoing(handle(), id_, value)); }

  // Lets ops of all later segments read a result of this one, which must not repeat, by the same id, whatever
  // its shape. A rank stores it once per microbatch, however many layers read it; pipeline stages pass it on.
  // The gradients of its readers are summed in the order of backward, the last reader's first, and flow back
  // to this segment. Returns the value.
  Id carry(Id value) const {
    raise(api().carry(handle(), id_, value));
    return value;
  }

  // Appends an op to forward. `inputs` are the operands it reads or updates, in order (none: an optional one
  // left out); returns the values it writes.
  std::vector<Id> ops(std::string_view kind, std::initializer_list<Id> inputs, int outputs,
                      std::initializer_list<AttrValue> attrs = {}) const {
    return insert(FunctionKind::forward, none, kind, inputs, outputs, attrs);
  }
  // Appends an op in the common case, and returns its first result.
  Id op(std::string_view kind, std::initializer_list<Id> inputs,
        std::initializer_list<AttrValue> attrs = {}) const {
    return ops(kind, inputs, 1, attrs)[0];
  }
  // Inserts an op as `insert` does, in forward, with any number of operands and attributes.
  std::vector<Id> insert_forward(Id before, std::string_view kind, const std::vector<Id>& inputs, int outputs,
                                 const std::vector<AttrValue>& attrs = {}) const {
    std::vector<Id> results(static_cast<std::size_t>(outputs), none);
    raise(api().op(handle(), id_, FunctionKind::forward, before, kind, {inputs.data(), inputs.size()},
                   {attrs.data(), attrs.size()}, results.data(), results.size()));
    return results;
  }
  // Inserts an op before `before` (none: at the end) of any function.
  std::vector<Id> insert(FunctionKind function, Id before, std::string_view kind,
                         std::initializer_list<Id> inputs, int outputs,
                         std::initializer_list<AttrValue> attrs = {}) const {
    std::vector<Id> results(static_cast<std::size_t>(outputs), none);
    raise(api().op(handle(), id_, function, before, kind, {inputs.begin(), inputs.size()},
                   {attrs.begin(), attrs.size()}, results.data(), results.size()));
    return results;
  }
  // Inserts an op on existing values: `operands` are all, in the order of the op's definition.
  void insert_on(FunctionKind function, Id before, std::string_view kind, std::initializer_list<Id> operands,
                 std::initializer_list<AttrValue> attrs = {}) const {
    raise(api().op(handle(), id_, function, before, kind, {operands.begin(), operands.size()},
                   {attrs.begin(), attrs.size()}, nullptr, 0));
  }
  std::vector<Id> operations(FunctionKind function) const {
    Array<Id> list;
    raise(api().ops(handle(), id_, function, &list));
    return {list.begin(), list.end()};
  }
  std::vector<Id> values() const {
    Array<Id> list;
    raise(api().values(handle(), id_, &list));
    return {list.begin(), list.end()};
  }

 private:
  Id parameter(std::string_view name, Array<Dim> dims, Init init, bool decay) const {
    const ParameterSpec spec{name, dims, init, decay};
    return call([&](Id* r) { return api().parameter(handle(), id_, &spec, r); });
  }
  Id input(std::string_view name) const {
    return call([&](Id* r) { return api().input(handle(), id_, name, r); });
  }
  template <class Call>
  static Id call(Call&& body) {
    Id id = none;
    raise(body(&id));
    return id;
  }
  const ProgramApi& api() const { return program_.api(); }
  void* handle() const { return program_.handle(); }

  ProgramRef program_;
  Id id_;
};

inline Segment ProgramRef::segment(std::string_view name, std::int64_t repeat) const {
  Id id = none;
  raise(api_->segment(program_, name, repeat, &id));
  return {*this, id};
}

inline std::vector<Segment> ProgramRef::segments() const {
  std::vector<Segment> list;
  const auto n = static_cast<Id>(api_->segment_count(program_));
  for (Id id = 0; id < n; ++id) list.emplace_back(*this, id);
  return list;
}

}  // namespace prun
