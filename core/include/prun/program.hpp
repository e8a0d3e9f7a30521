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

namespace prun {

enum class FunctionKind : std::uint8_t {
  load,    // step segment: bring a microbatch's tokens in
  begin,   // step segment: reset what a step accumulates
  zero,    // clear gradient accumulators
  gather,  // parameters that the ranks keep in parts come together
  clear,   // gradients that are summed over the ranks more than once a step, before each time
  forward,
  backward,          // input gradients; weight gradients too unless the program splits backward
  backward_weight,   // weight gradients, where split
  reduce,            // gradients summed over the ranks that hold summands
  norm,              // sum of squares of the gradients
  finish,            // step segment: global norm, clip factor, keep
  diagnose,          // where keep is 0: whose gradients are not finite
  update,            // optimizer
  report,            // step segment: losses and norms out to the host
  tie,               // gradients of a parameter that two stages of a pipeline hold, summed over the two
  send,              // made by the planner, between stages on different ranks: what an instance hands on,
  receive,           // its arrival,
  send_gradient,     // the gradient of what came in, back to the stage before,
  receive_gradient,  // and its arrival
  put_away,          // made by the planner: what backward reads of forward leaves the device meanwhile,
  bring_back,        // and returns
  renew              // copies of parameters are made anew that few ranks gather from (copy_within)
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
  staging,   // host side of `load` and `report`
  view,      // several parameters or gradients, side by side, as one flat value
  fetched,   // a copy of a parameter that lies elsewhere, in the device's memory for as long as it is used
};

// How a parameter starts. Element values depend on (seed, name, index) alone, never on the layout.
struct Init {
  enum class Kind : std::uint8_t { constant, normal } kind = Kind::constant;
  double value = 0;  // the constant, or the standard deviation
};
constexpr Init zeros() { return {}; }
constexpr Init ones() { return {Init::Kind::constant, 1.0}; }
constexpr Init normal(double deviation) { return {Init::Kind::normal, deviation}; }

struct ValueInfo {
  Role role = Role::activation;
  DType dtype = DType::f32;
  Id segment = none;
  std::int32_t rank = 0;
  Dim dims[max_dims] = {};
  bool frozen = false;
  bool decay = false;
  double lr_scale = 1;
  Text name;  // lives as long as the program
};

struct OpInfo {
  Text kind;
  Id segment = none;
  FunctionKind function = FunctionKind::forward;
  Part part = Part::input;
  Array<Id> operands;          // lives until the next edit
  const OpDef* def = nullptr;  // lives as long as the program
};

struct SegmentInfo {
  Text name;
  std::int64_t repeat = 1;
  // What comes in from the segment before and is handed on to the next, and their gradients, which go the
  // other way; none: there is none, or not yet.
  Id incoming = none, outgoing = none;
  Id incoming_gradient = none, outgoing_gradient = none;
};

// What a segment's backward computes again instead of keeping it from forward.
enum class RecomputeMode : std::uint8_t {
  nothing,
  full,    // everything that follows from what comes in
  ops,     // results of ops of the given kinds
  budget,  // whatever the planner needs to make the plan fit the device's memory
};

// Which part of each sequence a rank has.
enum class SequenceBalance : std::uint8_t {
  in_order,  // the next one after that of the rank before
  zigzag,    // a chunk from the front and one from the back, which is as much under a causal mask for all
};

// How the ranks of an axis share out sequences.
struct SequenceShares {
  SequenceBalance balance = SequenceBalance::zigzag;
  // What ops look at of all positions comes together in so many pieces along `heads`, each while they run on
  // the one before.
  std::int64_t pieces = 1;
};

// What the ranks of an axis keep in parts beside optimizer state, rather than each of them whole.
struct KeptInParts {
  // Then they are summed over the ranks as soon as no microbatch has given only some of its contributions,
  // else once a step.
  bool gradients = false;
  bool parameters = false;  // then they are gathered ahead of each use
};

// What has a part of what a segment's backward reads of its forward, in per cent of the bytes.
struct SavedShare {
  MemoryPlace place;
  std::int32_t percent = 100;
};

// Where a dimension that is asked to lie on an axis does.
enum class SplitScope : std::uint8_t {
  everywhere,
  // In parameters and ops, as a choice among several: what a microbatch brings in and is counted over goes by
  // the first of the others.
  weights,
  // In ops alone: parameters stay whole. An op takes it where it wants another dimension whole on which an
  // operand lies, and the next op that can goes back to that one.
  ops,
};

struct ParameterSpec {
  Text name;
  Array<Dim> dims;
  Init init;
  bool decay = false;  // weight decay applies (matrices)
};

// How a parameter is made of matrices, for optimizers that update each of them whole. Its dimensions are, in
// this order, those that number matrices, those that number rows, and those that number columns.
struct Matrices {
  std::int32_t batch = 0;    // how many of the first
  std::int32_t columns = 0;  // how many of the last; 0: it is no matrix
  // Where the first dimension of rows is cut: each piece has matrices of its own. 0: no more cuts.
  std::int64_t cuts[3] = {};
};

// Two small matrices that are trained in the place of a frozen weight, whose ops a strategy has written: the
// model computes as if the weight were weight + factor * up * down. What is saved, exported and read from
// others goes by it.
struct LowRank {
  Id weight = none;
  Id down = none;  // [rank, what the weight sums over: its last dimensions]
  Id up = none;    // [the weight's other dimensions, rank]
  // Of the weight's other dimensions, `up` has elements [begin, end) of this one only; empty: it has all.
  Text part;
  std::int64_t begin = 0, end = 0;
  double factor = 1;
  double dropout = 0;  // the probability that training drops what comes in to `down` with
};

// The core's half: every call is checked and says what was wrong.
struct ProgramApi {
  std::uint64_t struct_size;
  Status (*segment)(void* program, Text name, std::int64_t repeat, Id* result);
  Status (*parameter)(void* program, Id segment, const ParameterSpec* spec, Id* result);
  Status (*tie)(void* program, Id segment, Id parameter, Id* result);
  Status (*input)(void* program, Id segment, Text name, Id* result);
  Status (*runtime)(void* program, Text name, Id* result);
  Status (*incoming)(void* program, Id segment, Id* result);
  Status (*outgoing)(void* program, Id segment, Id value);
  // `before`: an op of that function, or none for the end. Outputs (operands the op writes) are created and
  // returned in order.
  Status (*op)(void* program, Id segment, FunctionKind function, Id before, Text kind, Array<Id> inputs,
               Array<AttrValue> attrs, Id* outputs, std::uint64_t output_count);
  Status (*replace_operand)(void* program, Id op, std::int32_t index, Id value);
  Status (*replace_kind)(void* program, Id op, Text kind);
  Status (*erase)(void* program, Id op);
  Status (*set_attr)(void* program, Id op, Text name, double value);
  Status (*get_attr)(void* program, Id op, Text name, double* value);
  Status (*set_parameter)(void* program, Id value, bool frozen, bool decay, double lr_scale);
  Status (*value_info)(void* program, Id value, ValueInfo* info);
  Status (*op_info)(void* program, Id op, OpInfo* info);
  Status (*segment_info)(void* program, Id segment, SegmentInfo* info);
  std::uint64_t (*segment_count)(void* program);
  // Ops of one function in order; borrowed until the next edit. A device that lowers the program is shown
  // none of functions that another device runs.
  Status (*ops)(void* program, Id segment, FunctionKind function, Array<Id>* result);
  Status (*values)(void* program, Id segment, Array<Id>* result);
  // Phase `shard`: dimension `dim` lies on a mesh axis wherever the ops allow it; the core derives the
  // placement of every value and what has to be exchanged. Of several dimensions on one axis, each op and
  // parameter takes the first asked for that it can; a microbatch's inputs know only the very first.
  Status (*split)(void* program, Text dim, Text axis);
  Status (*axis_extent)(void* program, Text axis, std::int64_t* extent);
  // Phase `state`: the ranks of an axis keep optimizer state, and what else is said, in equal parts of flat
  // buckets.
  Status (*keep_in_parts)(void* program, Text axis, KeptInParts kept);
  // Phase `memory`: what follows from the rest is not kept but computed again in backward. `kinds` with mode
  // `ops` only.
  Status (*recompute)(void* program, Id segment, RecomputeMode mode, Array<Text> kinds);
  // Phase `partition`: the chain of instances is cut into stages, `chunks` for each rank of an axis, which
  // run in the order that a schedule plugin gives. `layers`: instances of each stage, first to last; empty:
  // cut so that the costliest stage costs least.
  Status (*pipeline)(void* program, Text axis, Text schedule, std::int32_t chunks,
                     Array<std::int64_t> layers);
  // Another op in its place, on values that exist: all operands, in the order of its definition. What the one
  // before wrote and this one does not, nobody may read any more.
  Status (*replace_op)(void* program, Id op, Text kind, Array<Id> operands, Array<AttrValue> attrs);
  // Phase `memory`: each rank has one more device, beside the recipe's, which is number 0. Values lie in
  // spaces of devices, functions of a segment run on one: an op's operands must lie where the device that
  // runs its function reaches them; a `copy` is done by a device that reaches both its sides. Exchanges are
  // device 0's. What segments hand on lies in its own memory. A parameter that lies elsewhere is fetched
  // ahead of each use, and a gradient leaves as soon as it is complete: the core adds what moves them when
  // the phase is over. Of what ranks keep in parts, a place is each rank's part's.
  Status (*device)(void* program, Text plugin, std::int32_t* number);
  Status (*place)(void* program, Id value, MemoryPlace place);
  Status (*run_on)(void* program, Id segment, FunctionKind function, std::int32_t device);
  // Whether an op that is not shown reads or writes the value.
  Status (*used_elsewhere)(void* program, Id value, bool* used);
  // Phase `memory`: what backward reads of the segment's forward lies there in between, behind what is
  // computed again. It leaves as forward goes on and returns ahead of its backward.
  Status (*keep_saved)(void* program, Id segment, MemoryPlace place);
  // Which of several ways, said in words, cheapest first: the first with which the plan fits all memory. The
  // planner writes the program anew for each, and passes over those that are refused. Where several
  // strategies ask, they go on together.
  Status (*choose_to_fit)(void* program, Array<Text> ways, std::uint64_t* chosen);
  // As keep_saved, in several places whose per cent come to 100: whole values, the largest first, each where
  // most is missing. What falls to the recipe's device's own memory stays there.
  Status (*share_saved)(void* program, Id segment, Array<SavedShare> shares);
  // As split, but for where: of several requests for the same, the widest.
  Status (*split_in)(void* program, Text dim, Text axis, SplitScope scope);
  // As keep_in_parts, over several axes together: parameters that are updated alike are kept in parts over
  // those of the axes that sum their gradients, and the others must have them in parts already.
  Status (*keep_in_parts_over)(void* program, Array<Text> axes, KeptInParts kept);
  // As device, of a tier by its plugin's name (DeviceInfo::tier): any other is refused.
  Status (*tier)(void* program, Text plugin, std::int32_t* number);
  // Plugins of the tiers that the recipe has tables for, [tier.NAME], in its order; until the next edit. A
  // strategy that asks may use any of them: the recipe's tables are not idle then.
  Status (*tiers)(void* program, Array<Text>* plugins);
  // Phase `model`: what a parameter is made of. Whoever says nothing has parameters that are no matrices.
  Status (*set_matrices)(void* program, Id parameter, const Matrices* matrices);
  Status (*matrices)(void* program, Id parameter, Matrices* matrices);
  // A parameter that no gradient trains and no optimizer moves, in the type of statistics: fp32, or fp64
  // where that is computed in. Ops of `update` may change it. Every rank has all of it.
  Status (*untrained)(void* program, Id segment, const ParameterSpec* spec, Id* result);
  // A sum in fp64 that ops of a segment's forward add to, with a row for each layer of it in front. It is
  // zero as a step begins, complete and of all ranks from `finish` on, and told to observers as
  // "segment.name".
  Status (*tally)(void* program, Id segment, Text name, Array<Dim> dims, Id* result);
  // Phase `model`: the parameters `down` and `up`, which the strategy has added, stand for a change of a
  // weight that it has frozen.
  Status (*low_rank)(void* program, const LowRank* change);
  // What the model says of weights of others, so that those can be named as their libraries name them; lives
  // as long as the program.
  Status (*foreign_weights)(void* program, ForeignWeightsView* weights);
  // Phase `shard`: the ranks of an axis share out sequences. Ops that look at all of a sequence do so across
  // ranks (OpDef::across); where parts are not in order, ops with an operand `positions`, i32 [seq], are told
  // which one lies where, and batches come in that order.
  Status (*share_sequence)(void* program, Text axis, SequenceShares shares);
  // It splits as split_in does, over an axis that may have more ranks than the dimension has parts: beyond
  // those, ranks split dimension `within` of what has both, and what has the first alone they have alike.
  Status (*split_beyond)(void* program, Text dim, Text within, Text axis, SplitScope scope);
  // Phase `model`: a result of a segment that does not repeat becomes one that ops of all segments behind it
  // may read, beside what is handed on from each to the next: see Segment::carry.
  Status (*carry)(void* program, Id segment, Id value);
  // Phase `state`, behind keep_in_parts_over: of parameters that lie in parts over several axes, the ranks of
  // these of them, the last ones, have a copy among them. It is made anew once a step, and whoever uses a
  // parameter gathers it from the copy, over these axes alone.
  Status (*copy_within)(void* program, Array<Text> axes);
};

class Segment;

// A handle, cheap to copy; the core owns the program.
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
  void replace_kind(Id op, std::string_view kind) const { raise(api_->replace_kind(program_, op, kind)); }
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
  void split(std::string_view dim, std::string_view axis) const { raise(api_->split(program_, dim, axis)); }
  void split(std::string_view dim, std::string_view axis, SplitScope scope) const {
    raise(api_->split_in(program_, dim, axis, scope));
  }
  std::int64_t axis_extent(std::string_view axis) const {
    std::int64_t extent = 0;
    raise(api_->axis_extent(program_, axis, &extent));
    return extent;
  }
  void keep_in_parts(std::string_view axis, KeptInParts kept) const {
    raise(api_->keep_in_parts(program_, axis, kept));
  }
  void keep_in_parts(const std::vector<std::string>& axes, KeptInParts kept) const {
    const std::vector<Text> texts(axes.begin(), axes.end());
    raise(api_->keep_in_parts_over(program_, {texts.data(), texts.size()}, kept));
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

  // A matrix: weight decay applies to it.
  Id weight(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return parameter(name, {dims.begin(), dims.size()}, init, true);
  }
  Id weight(std::string_view name, const std::vector<Dim>& dims, Init init) const {
    return parameter(name, {dims.data(), dims.size()}, init, true);
  }
  // What a weight is made of, for optimizers that update whole matrices; returns it.
  Id matrix(Id weight, const Matrices& made) const {
    raise(api().set_matrices(handle(), weight, &made));
    return weight;
  }
  // A gain or a bias: it does not.
  Id vector(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return parameter(name, {dims.begin(), dims.size()}, init, false);
  }
  // One that no gradient trains: see ProgramApi::untrained.
  Id untrained(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    const ParameterSpec spec{name, {dims.begin(), dims.size()}, init, false};
    return call([&](Id* r) { return api().untrained(handle(), id_, &spec, r); });
  }
  // A sum of each step, [layer, dims...]: see ProgramApi::tally.
  Id tally(std::string_view name, std::initializer_list<Dim> dims) const {
    return call([&](Id* r) { return api().tally(handle(), id_, name, {dims.begin(), dims.size()}, r); });
  }
  // The same parameter as in another, unrepeated segment: one storage, gradients summed.
  Id tie(Id parameter) const {
    return call([&](Id* r) { return api().tie(handle(), id_, parameter, r); });
  }

  Id tokens() const { return input("tokens"); }    // i32 [batch, seq]
  Id targets() const { return input("targets"); }  // i32 [batch, seq]; negative: does not count
  Id samples() const { return input("samples"); }  // i64 [batch]: global sample numbers
  Id runtime(std::string_view name) const { return program_.runtime(name); }

  void recompute(RecomputeMode mode, const std::vector<std::string>& kinds = {}) const {
    const std::vector<Text> texts(kinds.begin(), kinds.end());
    raise(api().recompute(handle(), id_, mode, {texts.data(), texts.size()}));
  }

  void run_on(FunctionKind function, std::int32_t device) const {
    raise(api().run_on(handle(), id_, function, device));
  }
  void keep_saved(MemoryPlace place) const { raise(api().keep_saved(handle(), id_, place)); }
  void share_saved(const std::vector<SavedShare>& shares) const {
    raise(api().share_saved(handle(), id_, {shares.data(), shares.size()}));
  }

  // What the previous segment hands over, and what this one hands on.
  Id incoming() const {
    return call([&](Id* r) { return api().incoming(handle(), id_, r); });
  }
  void outgoing(Id value) const { raise(api().outgoing(handle(), id_, value)); }

  // Lets ops of all segments behind this one, which does not repeat, read a result of it, by the same id,
  // whatever its shape. A rank has it once a microbatch, however many layers read it; stages of a pipeline
  // pass it on. The gradients that its readers give are added up in the order of backward, the last reader's
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
  // The common case: the first result.
  Id op(std::string_view kind, std::initializer_list<Id> inputs,
        std::initializer_list<AttrValue> attrs = {}) const {
    return ops(kind, inputs, 1, attrs)[0];
  }
  // As insert, of forward, with as many operands and attributes as there are.
  std::vector<Id> insert_forward(Id before, std::string_view kind, const std::vector<Id>& inputs, int outputs,
                                 const std::vector<AttrValue>& attrs = {}) const {
    std::vector<Id> results(static_cast<std::size_t>(outputs), none);
    raise(api().op(handle(), id_, FunctionKind::forward, before, kind, {inputs.data(), inputs.size()},
                   {attrs.data(), attrs.size()}, results.data(), results.size()));
    return results;
  }
  // Inserts before `before` (none: at the end) of any function.
  std::vector<Id> insert(FunctionKind function, Id before, std::string_view kind,
                         std::initializer_list<Id> inputs, int outputs,
                         std::initializer_list<AttrValue> attrs = {}) const {
    std::vector<Id> results(static_cast<std::size_t>(outputs), none);
    raise(api().op(handle(), id_, function, before, kind, {inputs.begin(), inputs.size()},
                   {attrs.begin(), attrs.size()}, results.data(), results.size()));
    return results;
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
