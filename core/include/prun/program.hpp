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
  gather,  // gathers parameters that the ranks keep in parts
  clear,   // clears gradients that are summed over the ranks more than once a step, before each time
  forward,
  backward,          // input gradients; weight gradients too unless the program splits backward
  backward_weight,   // weight gradients, if the program splits backward
  reduce,            // sums gradients over the ranks that hold summands
  norm,              // sums the squares of the gradients
  finish,            // step segment: computes global norm, clip factor, keep
  diagnose,          // finds, where keep is 0, the parameters whose gradients are not finite
  update,            // optimizer
  report,            // step segment: copies losses and norms to the host
  tie,               // sums gradients of a parameter that two stages of a pipeline hold, over the two
  send,              // made by the planner, between ranks' stages: sends what an instance hands on,
  receive,           // receives it,
  send_gradient,     // sends the gradient of what came in back to the stage before,
  receive_gradient,  // and receives that
  put_away,          // made by the planner: moves what backward reads of forward off the device meanwhile,
  bring_back,        // and moves it back
  renew              // makes anew the copies of parameters that few ranks gather from (copy_within)
};
inline constexpr int function_kinds = 22;

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
                                   "renew"};
  return names[static_cast<int>(kind)];
}

enum class Role : std::uint8_t {
  activation,
  parameter,
  gradient,  // accumulator of a parameter's gradient
  state,     // optimizer state: master copy, moments
  input,     // tokens, targets, sample numbers of one microbatch
  runtime,   // scalar that changes from step to step: learning rate, norm, keep, ...
  staging,   // memory of the host for `load` and `report`
  view,      // several parameters or gradients, one after another, as one flat value
  fetched,   // copy of a parameter that lies elsewhere, in the device's memory for as long as it is used
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
  Text name;  // the name lives as long as the program
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

// Says what the step is that the program computes.
struct StepContext {
  bool training = true;  // otherwise it evaluates, or makes text
  std::int64_t microbatches = 1;
  DType compute = DType::f32, master = DType::f32, moments = DType::f32, gradient = DType::f32,
        reduce = DType::f32;  // as [precision] says
};

struct SegmentInfo {
  Text name;
  std::int64_t repeat = 1;
  // These are what the segment before hands over and what this one hands on, and their gradients, which go
  // the other way; none: there is none, or not yet.
  Id incoming = none, outgoing = none;
  Id incoming_gradient = none, outgoing_gradient = none;
};

// Says what a segment's backward computes again instead of keeping it from forward.
enum class RecomputeMode : std::uint8_t {
  nothing,
  full,    // everything that follows from the segment's input
  ops,     // results of ops of the given kinds
  budget,  // as much as the planner needs to make the plan fit the device's memory
};

// Says which part of each sequence a rank has.
enum class SequenceBalance : std::uint8_t {
  in_order,  // the part behind that of the rank before
  zigzag,    // a chunk from the front and one from the back, which is equal work for all under a causal mask
};

// Says how the ranks of an axis share out sequences.
struct SequenceShares {
  SequenceBalance balance = SequenceBalance::zigzag;
  // Ops that read all positions get them gathered in so many pieces along `heads`, each piece while they run
  // on the one before.
  std::int64_t pieces = 1;
};

// Says what the ranks of an axis keep in parts beside optimizer state, rather than each rank whole.
struct KeptInParts {
  // If set, gradients are summed over the ranks as soon as no microbatch has given only some of its
  // contributions, otherwise once a step.
  bool gradients = false;
  bool parameters = false;  // if set, they are gathered before each use
};

// Gives one place a share of what a segment's backward reads of its forward, in per cent of the bytes.
struct SavedShare {
  MemoryPlace place;
  std::int32_t percent = 100;
};

// Says where a dimension that is requested to lie on an axis does so.
enum class SplitScope : std::uint8_t {
  everywhere,
  // The axis splits the dimension in parameters and ops, as one choice among several: a microbatch's inputs,
  // and what is counted over them, follow the first request with another scope.
  weights,
  // The axis splits the dimension in ops alone: parameters stay whole. An op takes it where it wants another
  // dimension whole on which an operand lies, and the next op that can goes back to that one.
  ops,
};

struct ParameterSpec {
  Text name;
  Array<Dim> dims;
  Init init;
  bool decay = false;  // whether weight decay applies (matrices)
};

// Says how a parameter is made of matrices, for optimizers that update each of them whole. Its dimensions
// are, in this order, those that number matrices, those that number rows, and those that number columns.
struct Matrices {
  std::int32_t batch = 0;    // number of leading dimensions that number matrices
  std::int32_t columns = 0;  // number of trailing dimensions that number columns; 0: it is no matrix
  // The first dimension of rows is cut here: each piece has matrices of its own. 0: no more cuts.
  std::int64_t cuts[3] = {};
};

// Describes two small matrices that are trained in place of a frozen weight, whose ops a strategy has
// written: the model computes as if the weight were weight + factor * up * down. Saves, exports and foreign
// weights go by this.
struct LowRank {
  Id weight = none;
  Id down = none;  // [rank, the dimensions that the weight sums over: its last ones]
  Id up = none;    // [the weight's other dimensions, rank]
  // `up` has, of the weight's other dimensions, elements [begin, end) of this one only; if it is empty, `up`
  // has all.
  Text part;
  std::int64_t begin = 0, end = 0;
  double factor = 1;
  double dropout = 0;  // probability that training drops an element of the input of `down`
};

// This is the core's half: every call is checked and says what was wrong.
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
  // Phase `shard`: puts dimension `dim` on a mesh axis wherever the ops allow it; the core derives the
  // placement of every value and what has to be exchanged. Of several dimensions requested for one axis, each
  // op and parameter takes the first that it can; a microbatch's inputs know only the very first. Of several
  // requests for the same, the widest scope counts.
  Status (*split)(void* program, Text dim, Text axis, SplitScope scope);
  // Phase `state`: has the ranks of axes together keep optimizer state, and what `kept` adds, in equal parts
  // of flat buckets: parameters that are updated alike are kept in parts over those of the axes that sum
  // their gradients, and the others must have them in parts already.
  Status (*keep_in_parts)(void* program, Array<Text> axes, KeptInParts kept);
  // Phase `memory`: says what backward computes again from the rest instead of keeping it. `kinds` is for
  // mode `ops` only.
  Status (*recompute)(void* program, Id segment, RecomputeMode mode, Array<Text> kinds);
  // Phase `partition`: cuts the chain of instances into stages, `chunks` for each rank of an axis, which run
  // in the order that a schedule plugin gives. `layers` counts the instances of each stage, first to last; if
  // it is empty, the cut makes the costliest stage cost least.
  Status (*pipeline)(void* program, Text axis, Text schedule, std::int32_t chunks,
                     Array<std::int64_t> layers);
  // Puts another op in an op's place, on values that exist: `operands` are all, in the order of its
  // definition. No op may read any more what the old one wrote and the new one does not.
  Status (*replace_op)(void* program, Id op, Text kind, Array<Id> operands, Array<AttrValue> attrs);
  // Phase `memory`: gives each rank one more device, beside the recipe's, which is number 0. Values lie in
  // spaces of devices, and each function of a segment runs on one: an op's operands must lie where the device
  // that runs its function reaches them; a `copy` is done by a device that reaches both its sides. Exchanges
  // are device 0's. What segments hand on lies in its own memory. A parameter that lies elsewhere is fetched
  // before each use, and a gradient leaves as soon as it is complete: the core adds the moves when the phase
  // is over. If ranks keep a value in parts, its place is that of each rank's part.
  Status (*device)(void* program, Text plugin, std::int32_t* number);
  Status (*place)(void* program, Id value, MemoryPlace place);
  Status (*run_on)(void* program, Id segment, FunctionKind function, std::int32_t device);
  // Says whether an op that is not shown reads or writes the value.
  Status (*used_elsewhere)(void* program, Id value, bool* used);
  // Chooses one of several ways, described in words, cheapest first: the first with which the plan fits all
  // memory. The planner writes the program anew for each, and passes over those that are refused. If several
  // strategies call this, they take the next way together.
  Status (*choose_to_fit)(void* program, Array<Text> ways, std::uint64_t* chosen);
  // Phase `memory`: says where that lies in between which backward reads of the segment's forward and does
  // not compute again. It leaves as forward goes on and returns before its backward. The per cent of several
  // places come to 100: whole values, the largest first, each where most is missing. The share of the
  // recipe's device's own memory stays there.
  Status (*share_saved)(void* program, Id segment, Array<SavedShare> shares);
  // Does as device, for a tier by its plugin's name (DeviceInfo::tier): any other device is refused.
  Status (*tier)(void* program, Text plugin, std::int32_t* number);
  // Lists the plugins of the tiers that the recipe has tables for, [tier.NAME], in its order; the array is
  // valid until the next edit. A strategy that calls this may use any of them: the recipe's tables are not
  // idle then.
  Status (*tiers)(void* program, Array<Text>* plugins);
  // Phase `model`: says what matrices a parameter is made of. Without this call it is no matrix.
  Status (*set_matrices)(void* program, Id parameter, const Matrices* matrices);
  Status (*matrices)(void* program, Id parameter, Matrices* matrices);
  // Adds what lasts from step to step and no optimizer moves. In phase `model` it is part of the model, as a
  // parameter that no gradient trains is: ops of `update` may change it, and every rank has all of it. From
  // phase `placed` on it is the strategy's own, lies as the description says, and any op may change it.
  Status (*state)(void* program, Id segment, const KeptState* state, Id* result);
  // Adds a sum in fp64 that ops of a segment's forward add to, with a row for each layer of the segment in
  // front. It is zero as a step begins, is summed over all ranks from `finish` on, and observers get it as
  // "segment.name".
  Status (*tally)(void* program, Id segment, Text name, Array<Dim> dims, Id* result);
  // Phase `model`: says that the parameters `down` and `up`, which the strategy has added, stand for a change
  // of a weight that it has frozen.
  Status (*low_rank)(void* program, const LowRank* change);
  // Returns how the model maps foreign weights, so that those can be named as their libraries name them; it
  // lives as long as the program.
  Status (*foreign_weights)(void* program, ForeignWeightsView* weights);
  // Phase `shard`: has the ranks of an axis share out sequences. Ops that read all of a sequence do so across
  // ranks (OpDef::across); if parts are not in order, ops with an operand `positions`, i32 [seq], learn which
  // position lies where, and batches come in that order.
  Status (*share_sequence)(void* program, Text axis, SequenceShares shares);
  // Splits as split does, over an axis that may have more ranks than the dimension has parts: beyond
  // those, ranks split dimension `within` of values that have both, and have values with the first alone
  // alike.
  Status (*split_beyond)(void* program, Text dim, Text within, Text axis, SplitScope scope);
  // Phase `model`: makes a result of a segment that does not repeat one that ops of all segments behind it
  // may read, beside what each segment hands on to the next: see Segment::carry.
  Status (*carry)(void* program, Id segment, Id value);
  // Phase `state`, behind keep_in_parts: has the ranks of these axes, the last of those over which
  // parameters lie in parts, keep a copy of the parameters among them. It is made anew once a step, and an op
  // that uses a parameter gathers it from the copy, over these axes alone.
  Status (*copy_within)(void* program, Array<Text> axes);
  // From phase `placed` on: says how a value lies on an axis. An accumulator of a gradient lies as
  // contributions arrive, before `reduce` sums them. What was added in this phase lies nowhere yet.
  Status (*placement)(void* program, Id value, Text axis, Lies* lies);
  // Phase `state`: has each coordinate of an axis keep only its part of one dimension of a state, which lay
  // there alike. Ops that read it are the strategy's to change. A request without effect is refused.
  Status (*place_over)(void* program, Id value, const Lies* lies);
  // Shows all of the program at once; the arrays are valid until the next edit.
  Status (*view)(void* program, ProgramView* view);
  Status (*axis)(void* program, Text name, AxisInfo* axis);
  Status (*step_context)(void* program, StepContext* context);
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
  // Puts another op in an op's place, on the same operands, with the attributes that it has by default.
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
  void keep_in_parts(const std::vector<std::string>& axes, KeptInParts kept) const {
    const std::vector<Text> texts(axes.begin(), axes.end());
    raise(api_->keep_in_parts(program_, {texts.data(), texts.size()}, kept));
  }
  void copy_within(const std::vector<std::string>& axes) const {
    const std::vector<Text> texts(axes.begin(), axes.end());
    raise(api_->copy_within(program_, {texts.data(), texts.size()}));
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
  // Says what matrices a weight is made of, for optimizers that update whole matrices; returns the weight.
  Id matrix(Id weight, const Matrices& made) const {
    raise(api().set_matrices(handle(), weight, &made));
    return weight;
  }
  // Adds a gain or a bias: weight decay does not apply to it.
  Id vector(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return parameter(name, {dims.begin(), dims.size()}, init, false);
  }
  // Adds what lasts from step to step: see ProgramApi::state.
  Id state(const KeptState& state) const {
    return call([&](Id* r) { return api().state(handle(), id_, &state, r); });
  }
  // Adds a sum of each step, [layer, dims...]: see ProgramApi::tally.
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

  // Returns what the previous segment hands over; the next function sets what this one hands on.
  Id incoming() const {
    return call([&](Id* r) { return api().incoming(handle(), id_, r); });
  }
  void outgoing(Id value) const { raise(api().outgoing(handle(), id_, value)); }

  // Lets ops of all segments behind this one, which does not repeat, read a result of it, by the same id,
  // whatever its shape. A rank has it once a microbatch, however many layers read it; stages of a pipeline
  // pass it on. The gradients that its readers give are summed in the order of backward, the last reader's
  // first, and come back to this segment. Returns the value.
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
  // Does as insert, in forward, with any number of operands and attributes.
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
  // Does so on values that exist: `operands` are all, in the order of the op's definition.
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
