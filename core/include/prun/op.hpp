// SPDX-License-Identifier: Apache-2.0
// Defines an op: its operands, its rule (shape and placement in one), its gradient and its cost.
//
// Rules speak in dimension names. Within one op, equal names mean the same dimension. An op sets the dims of
// its outputs and marks the dimensions that are summed over or must be whole; everything else is split
// freely. From that follows, for a mesh axis that shards dimension d:
//   d unmarked        operands that have d are sharded on it, the others are replicated
//   d in sums         as above, and outputs without d become partial sums over the axis
//   d in maxes        likewise partial maxima: each rank has what it found largest
//   d in wholes       operands must have d whole: the program gathers them first
// An operand marked linear passes a partial sum through to the outputs, one marked
// monotone a partial maximum. One marked own differs from rank to rank: ops pass it to
// each other on the same rank, and it is never communicated. If several dimensions
// could be sharded on the axis, the op takes the first by which an operand is sharded
// already; one in `preferred` comes before those, whether or not an operand is sharded
// by it.
// Everything else that the core needs to know of an op is a trait of its definition (OpDef), never its name:
// an op of yours with the traits of a built-in one is treated like it.
#pragma once

#include <array>
#include <initializer_list>

#include "prun/exchange.hpp"
#include "prun/kernel.hpp"
#include "prun/status.hpp"

namespace prun {

enum class Access : std::uint8_t {
  read,
  write,   // every element is written, nothing is read
  update,  // read and written in place: an accumulator or a state
};

struct OperandDef {
  const char* name;
  Access access = Access::read;
  // An optional result is left out until a gradient asks for it (Gradient::keep).
  bool optional = false;
  // The numbers in this operand select rows (the first dimension) of the operand with this index; -1: they do
  // not. If they are tokens or targets, data must have no token beyond that table.
  std::int32_t rows_by = -1;
};

struct AttrDef {
  const char* name;
  bool real;  // whether it is a double, rather than a std::int64_t
  // The attribute was added after the op had kernels and plans: at its fallback value it has no effect, and a
  // plan's fingerprint omits it.
  bool later = false;
  Attr fallback;  // its value when the program gives none

  // Says whether an op with this value equals one without the attribute.
  constexpr bool says_nothing(const Attr& value) const { return later && value.i == fallback.i; }
};

constexpr AttrDef real_attr(const char* name, double fallback) {
  return {name, true, false, Attr{.f = fallback}};
}
constexpr AttrDef int_attr(const char* name, std::int64_t fallback) {
  return {name, false, false, Attr{.i = fallback}};
}
constexpr AttrDef later(AttrDef attr) {
  attr.later = true;
  return attr;
}

// Effects are typed, so that no clean-up pass can drop an op whose result is never read.
enum class Effect : std::uint8_t {
  pure,  // only its outputs matter
  // The op changes something that outlives the function: it never runs again in backward, and must give its
  // gradient even where none flows back to it, as a loss must.
  update,
};

// Describes a collective that a comm plugin runs in place of a kernel, over the mesh axis in the op's
// attribute `axis`. The op reads one operand and writes one; an all_reduce updates its only one. The op's
// rule marks the dimensions that it runs along as whole: for an all_to_all, first the one that was sharded,
// then the one that becomes sharded. A `send` shifts parts of dimension `dim` by `distance` places.
struct OpExchange {
  CommKind kind = CommKind::all_reduce;  // or all_gather, reduce_scatter, all_to_all, send
  Reduction reduction = Reduction::sum;
};

struct OpCost {
  double flops = 0;
  double bytes = 0;  // bytes moved: operands read and written once unless the op says otherwise
  // Flops that repeat those of another op, which counts them: they are no model FLOPs.
  double repeated = 0;
};

// Holds what a rule reads (operands, attrs) and what it fills (outputs, and its marks).
struct OpShape {
  std::int32_t count = 0;
  OperandShape operand[max_operands] = {};
  const Attr* attrs = nullptr;
  Name sums[max_marks] = {};
  Name wholes[max_marks] = {};
  std::uint32_t linear = 0;  // bit i: operand i passes partial sums through
  Name maxes[max_marks] = {};
  Name preferred[max_marks] = {};
  std::uint32_t monotone = 0;  // bit i: operand i passes partial maxima through
  std::uint32_t own = 0;       // bit i: operand i differs from rank to rank

  void output(int i, DType dtype, const Dim* dims, int rank) {
    operand[i].present = true;
    operand[i].dtype = dtype;
    operand[i].rank = rank;
    for (int d = 0; d < rank; ++d) operand[i].dims[d] = dims[d];
  }
  void like(int i, int source) { operand[i] = operand[source]; }
  void scalar(int i, DType dtype) { output(i, dtype, nullptr, 0); }
  void sum(const Name& name) { mark(sums, name); }
  void max(const Name& name) { mark(maxes, name); }
  void whole(const Name& name) { mark(wholes, name); }
  // Marks a preferred name; the one that is marked first comes first.
  void prefer(const Name& name) { mark(preferred, name); }
  // Marks the dimensions [from, to) of operand i.
  void sum(int i, int from, int to) {
    for (int d = from; d < to; ++d) sum(operand[i].dims[d].name);
  }
  void max(int i, int from, int to) {
    for (int d = from; d < to; ++d) max(operand[i].dims[d].name);
  }
  void whole(int i, int from, int to) {
    for (int d = from; d < to; ++d) whole(operand[i].dims[d].name);
  }
  void pass_partial(std::initializer_list<int> operands) {
    for (int i : operands) linear |= 1u << i;
  }
  void pass_maximum(std::initializer_list<int> operands) {
    for (int i : operands) monotone |= 1u << i;
  }
  void keep_own(int i) { own |= 1u << i; }
  // Returns the type of the statistics kept beside values of type t.
  static DType statistics(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

 private:
  static void mark(Name (&list)[max_marks], const Name& name) {
    for (Name& slot : list) {
      if (slot == name) return;
      if (slot.empty()) {
        slot = name;
        return;
      }
    }
    throw_error(ErrorCode::internal, "an op marks more than ", max_marks, " dimensions");
  }
};

using Id = std::uint32_t;
inline constexpr Id none = 0xffffffffu;

struct AttrValue {
  const char* name;
  double value;
};

// Says which part of backward an op belongs to: a schedule may run them at different times.
enum class Part : std::uint8_t { input, weight };

// Holds the core's functions behind Gradient: out-of-line calls on a handle.
struct GradientApi {
  std::uint64_t struct_size;
  void* context;
  Id (*operand)(void* context, std::int32_t index);
  // Returns the gradient that has arrived for output `index`; none: nothing flows back through it.
  Id (*arrived)(void* context, std::int32_t index);
  // Says whether the gradient of operand `index` is needed.
  bool (*wanted)(void* context, std::int32_t index);
  // Returns, for a parameter, the accumulator that its gradient is added to.
  Id (*accumulator)(void* context, std::int32_t index);
  Status (*emit)(void* context, Part part, Text kind, Array<Id> operands, Array<AttrValue> attrs);
  // Makes a value for the next emit() to write: all values made since the last emit() are its last operands,
  // in order.
  Id (*fresh)(void* context, Text name);
  Status (*contribute)(void* context, std::int32_t index, Id gradient);
  // Fills an operand that the forward op left out.
  Status (*bind)(void* context, std::int32_t index, Id value);
  double (*attr)(void* context, Text name);
  // Makes the forward op write a result that is otherwise left out.
  Status (*keep)(void* context, std::int32_t index, Id* result);
};

// Holds the core's functions behind OpSplit: out-of-line calls on a handle.
struct SplitApi {
  std::uint64_t struct_size;
  void* context;
  const OpShape* shape;  // shape of the whole operands
  Name dim;
  Array<std::int32_t> axes;
  Id (*operand)(void* context, std::int32_t index);
  // Emits an op. With results, `operands` are those the op does not write, and the others are created.
  // Without results, they are all, in the order of its definition.
  Status (*emit)(void* context, Text kind, Array<Id> operands, Array<AttrValue> attrs, Id* results,
                 std::uint64_t result_count);
};

struct OpDef {
  std::uint64_t struct_size = sizeof(OpDef);
  const char* kind = nullptr;
  const char* help = nullptr;
  const OperandDef* operands = nullptr;
  std::uint64_t operand_count = 0;
  const AttrDef* attrs = nullptr;
  std::uint64_t attr_count = 0;
  Effect effect = Effect::pure;
  bool clears = false;  // whether what it writes becomes zero: sums begin there
  // The result holds the same numbers in another type: a pass may remove the op, or replace it by
  // `cast`.
  bool converts = false;
  // The result holds the same bytes in another place: the op runs on a device that reaches both, whichever
  // device computes.
  bool copies = false;
  // Its results include gradients, and its cost is that of all three passes.
  bool gradient_in_forward = false;
  // Names an attribute that is 0 outside training, such as a dropout's probability; null: the op has none.
  const char* noise = nullptr;
  // For a head, names the op that returns the logits, from its first three operands (values, table, targets)
  // and those with the same name in both ops, at the position of each row whose target counts; null: there is
  // none.
  const char* logits = nullptr;
  // Names the op that does the same for some positions of a sequence (text generation), the last of which may
  // be beyond the text: it has this op's operands by name, and `position`, the first one's number, and
  // caches: `kept_x`, updated, is x of all positions up to them. It is this op's own kind if the op treats
  // all positions alike. null: none is known, and text is generated from whole sequences.
  const char* at_position = nullptr;
  const OpExchange* exchange = nullptr;  // null if a kernel runs the op
  // If ranks hold the same data, one may compute the result for all: operand 1, `part`, may be left out, and
  // if the attribute `ranks` is not 0, results are zero on all ranks but one, which is chosen by the place
  // of `part` (Tensor::start) and by (first + KernelArgs::layer) % ranks.
  bool dealt = false;
  Status (*rule)(OpShape* shape) noexcept = nullptr;
  Status (*gradient)(const GradientApi* api) noexcept = nullptr;  // null if it is not differentiable
  Status (*cost)(const OpShape* shape, OpCost* cost) noexcept = nullptr;
  // Null means that the op cannot be written in other ops.
  Status (*split)(const SplitApi* api) noexcept = nullptr;
  // Names the op that does the same on sequences split over ranks: operands and attributes are named like
  // those of this op; `all_x` is x of all positions, in order, with the sequence dimension `context`. If
  // sequences have another order, its attributes `chunk` and `chunks` describe it. null: the op gets unsplit
  // sequences.
  const char* across = nullptr;
  // For an op that needs a dimension of its operand `x` unsharded, names the op that does the same with that
  // dimension's slots in two values, the last two as `x_last` and those before as `x_first`, so that one can
  // be split without the other. null: there is none.
  const char* apart = nullptr;
  // Set by an op that needs unsplit sequences but treats all positions alike, so that operands with their
  // positions in another order give the same results, in that order. The op need not know the order.
  bool any_order = false;
  // For an op with an attribute `fp8`, which multiplies in fp8 blocks (prun/fp8_blocks.hpp) if that is 1:
  // returns whether no block crosses the bounds of a rank's shard. If the part is the whole, it returns
  // whether the op can be divided into blocks at all: if not, the op is not quantized. null: its products are
  // never in fp8.
  bool (*in_blocks)(const OpShape* part, const OpShape* whole) noexcept = nullptr;
};

// Gives the author of gradient() a forward op and the gradients of its results.
class Gradient {
 public:
  explicit Gradient(const GradientApi& api) : api_(api) {}

  Id operand(int i) const { return api_.operand(api_.context, i); }
  Id arrived(int output) const { return api_.arrived(api_.context, output); }
  bool wanted(int i) const { return operand(i) != none && api_.wanted(api_.context, i); }
  double attr(const char* name) const { return api_.attr(api_.context, name); }

  // Emits an op of backward's input part; the gradient of operand i is appended as its last operand.
  void input(int i, const char* kind, std::initializer_list<Id> operands,
             std::initializer_list<AttrValue> attrs = {}) const {
    inputs({i}, kind, operands, attrs);
  }
  // Emits one op that computes the gradients of all listed operands, if any of them is wanted.
  void inputs(std::initializer_list<int> targets, const char* kind, std::initializer_list<Id> operands,
              std::initializer_list<AttrValue> attrs = {}) const {
    Id results[max_operands];
    std::uint64_t n = 0, useful = 0;
    for (int i : targets) useful += wanted(i);
    if (!useful) return;
    for (std::size_t i = 0; i < targets.size(); ++i) results[n++] = api_.fresh(api_.context, kind);
    emit(Part::input, kind, operands, {results, n}, attrs);
    for (std::size_t i = 0; i < n; ++i)
      if (const int target = targets.begin()[i]; wanted(target))
        raise(api_.contribute(api_.context, target, results[i]));
  }
  // Fills an operand that the forward op left out, for an op that computes a gradient in forward already.
  void bind(int i, Id value) const { raise(api_.bind(api_.context, i, value)); }
  // Returns the optional result i of the forward op, which is then written: it saves what forward has
  // computed for this gradient alone, as an operand that is optional there too. If memory is scarce, it is
  // left out after all, and the op that reads it recomputes it.
  Id keep(int i) const {
    Id result = none;
    raise(api_.keep(api_.context, i, &result));
    return result;
  }
  Id accumulator(int i) const { return wanted(i) ? api_.accumulator(api_.context, i) : none; }
  // Passes a gradient on unchanged.
  void pass(int i, Id gradient) const {
    if (wanted(i)) raise(api_.contribute(api_.context, i, gradient));
  }
  // Emits an op of backward's weight part that adds into the accumulator of each listed operand, appended in
  // that order; an accumulator that is not needed is `none`.
  void weight(std::initializer_list<int> targets, const char* kind, std::initializer_list<Id> operands,
              std::initializer_list<AttrValue> attrs = {}) const {
    Id sums[max_operands];
    std::uint64_t n = 0, useful = 0;
    for (int i : targets) {
      sums[n] = accumulator(i);
      useful += sums[n++] != none;
    }
    if (useful) emit(Part::weight, kind, operands, {sums, n}, attrs);
  }

 private:
  void emit(Part part, const char* kind, std::initializer_list<Id> operands, Array<Id> results,
            std::initializer_list<AttrValue> attrs) const {
    Id list[max_operands];
    std::uint64_t n = 0;
    for (Id id : operands) list[n++] = id;
    for (Id id : results) list[n++] = id;
    raise(api_.emit(api_.context, part, kind, {list, n}, {attrs.begin(), attrs.size()}));
  }

  const GradientApi& api_;
};

// Gives the author of split() an op that needs dimension `dim` unsharded although the mesh axes `axes` are to
// split it. split() writes the same computation in ops that can be split; if it emits nothing, the op stays
// as it is.
class OpSplit {
 public:
  explicit OpSplit(const SplitApi& api) : api_(api) {}

  const OpShape& shape() const { return *api_.shape; }
  const Name& dim() const { return api_.dim; }
  Array<std::int32_t> axes() const { return api_.axes; }
  Id operand(int i) const { return api_.operand(api_.context, i); }

  // Emits an op between others; its results are created.
  template <std::size_t results>
  std::array<Id, results> create(const char* kind, std::initializer_list<Id> inputs,
                                 std::initializer_list<AttrValue> attrs = {}) const {
    std::array<Id, results> made;
    raise(api_.emit(api_.context, kind, {inputs.begin(), inputs.size()}, {attrs.begin(), attrs.size()},
                    made.data(), results));
    return made;
  }
  // Emits an op on existing values, with all its operands listed: it writes the results of the op that is
  // split.
  void emit(const char* kind, std::initializer_list<Id> operands,
            std::initializer_list<AttrValue> attrs = {}) const {
    raise(api_.emit(api_.context, kind, {operands.begin(), operands.size()}, {attrs.begin(), attrs.size()},
                    nullptr, 0));
  }

 private:
  const SplitApi& api_;
};

// Builds the OpDef of an op written as a struct:
//   struct Square {
//     static constexpr const char* kind = "square";
//     static constexpr const char* help = "y = x * x";
//     static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
//     static void rule(OpShape& s) { s.like(1, 0); }
//     static void gradient(const Gradient& g) { g.input(0, "square_grad", {g.operand(0), g.arrived(1)}); }
//   };
// attrs, gradient, cost, split(const OpSplit&) and the traits (effect, clears, converts, copies,
// gradient_in_forward, noise, logits, at_position, across, apart, any_order, in_blocks, exchange, dealt) are
// optional.
// Without cost(), an op moves its operands once and counts no FLOPs.
template <class Op>
OpDef op_def() {
  OpDef def;
  def.kind = Op::kind;
  def.help = Op::help;
  def.operands = Op::operands;
  def.operand_count = std::size(Op::operands);
  if constexpr (requires { Op::attrs; }) {
    def.attrs = Op::attrs;
    def.attr_count = std::size(Op::attrs);
  }
  if constexpr (requires { Op::effect; }) def.effect = Op::effect;
  if constexpr (requires { Op::clears; }) def.clears = Op::clears;
  if constexpr (requires { Op::converts; }) def.converts = Op::converts;
  if constexpr (requires { Op::copies; }) def.copies = Op::copies;
  if constexpr (requires { Op::gradient_in_forward; }) def.gradient_in_forward = Op::gradient_in_forward;
  if constexpr (requires { Op::noise; }) def.noise = Op::noise;
  if constexpr (requires { Op::logits; }) def.logits = Op::logits;
  if constexpr (requires { Op::at_position; }) def.at_position = Op::at_position;
  if constexpr (requires { Op::across; }) def.across = Op::across;
  if constexpr (requires { Op::apart; }) def.apart = Op::apart;
  if constexpr (requires { Op::any_order; }) def.any_order = Op::any_order;
  if constexpr (requires(const OpShape& part) { Op::in_blocks(part, part); })
    def.in_blocks = [](const OpShape* part, const OpShape* whole) noexcept {
      return Op::in_blocks(*part, *whole);
    };
  if constexpr (requires { Op::exchange; }) def.exchange = &Op::exchange;
  if constexpr (requires { Op::dealt; }) def.dealt = Op::dealt;
  def.rule = [](OpShape* shape) noexcept { return guard([&] { Op::rule(*shape); }); };
  if constexpr (requires(const Gradient& g) { Op::gradient(g); })
    def.gradient = [](const GradientApi* api) noexcept {
      return guard([&] { Op::gradient(Gradient(*api)); });
    };
  if constexpr (requires(const OpSplit& s) { Op::split(s); })
    def.split = [](const SplitApi* api) noexcept { return guard([&] { Op::split(OpSplit(*api)); }); };
  def.cost = [](const OpShape* shape, OpCost* cost) noexcept {
    return guard([&] {
      for (int i = 0; i < shape->count; ++i) {
        const double passes = Op::operands[i].access == Access::update ? 2 : 1;
        cost->bytes += passes * static_cast<double>(shape->operand[i].bytes());
      }
      if constexpr (requires { Op::cost(*shape, *cost); }) Op::cost(*shape, *cost);
    });
  };
  return def;
}

}  // namespace prun
