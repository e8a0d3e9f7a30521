#include "placement/placement.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ops/base_ops.hpp"
#include "placement/axis_sums.hpp"
#include "placement/split_ops.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ axis exchanges

// Inserts collectives that change a value's placement on an axis.
class AxisExchanges {
 public:
  explicit AxisExchanges(AxisState& axis) : axis_(axis), program_(axis.program()) {}

  // Values converted in another function are not available in this one.
  void begin_function() { exchanged_.clear(); }
  // Returns the value with the wanted placement, converting it at most once a function. What forward
  // resharded along another dimension is kept for backward: it takes no more memory than the original.
  Id converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function, Id before);

 private:
  using Exchanged = std::vector<std::pair<Id, Id>>;  // value, converted value

  Id exchange(Id id, const AxisPlacement& wanted);
  Id reduced_in_parts(Id id, const AxisPlacement& wanted);
  Id swapped(Id id, const AxisPlacement& wanted);
  Id reduced(Id id);
  Id counted_once(Id id);
  Id along(Id id, const char* kind, const Name& dim, const AxisPlacement& result);
  Id insert(Id id, const char* kind, std::span<const Id> operands, std::span<const AttrValue> attrs,
            const AxisPlacement& result);
  std::ptrdiff_t place_of(Id id, const Name& dim) const;

  AxisState& axis_;
  Program& program_;
  struct {
    Id segment = none;
    FunctionKind function = FunctionKind::forward;
    Id before = none;
  } place_;  // where collectives are inserted
  Exchanged exchanged_;
  std::map<Id, Exchanged> swapped_;  // resharded in forward, by segment
};

// Returns true if a value with placement `have` can be used where `wanted` is required without communication.
// A replicated value already equals its maximum over the ranks; a varying value is used as the rank has it.
bool serves(const AxisPlacement& have, const AxisPlacement& wanted) {
  return have == wanted || (have.is_replicated() && wanted.is_maximum()) ||
         (have.is_varying() && wanted.is_replicated());
}

Id AxisExchanges::converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function,
                            Id before) {
  if (serves(axis_.now(id), wanted)) return id;
  for (const Exchanged& list : {exchanged_, swapped_[segment]})
    for (const auto& [from, to] : list)
      if (from == id && axis_.now(to) == wanted) return to;
  place_ = {segment, function, before};
  const bool swaps = axis_.now(id).is_sharded() && wanted.is_sharded();
  const Id result = exchange(id, wanted);
  exchanged_.push_back({id, result});
  if (swaps && function == FunctionKind::forward) swapped_[segment].push_back({id, result});
  return result;
}

Id AxisExchanges::exchange(Id id, const AxisPlacement& wanted) {
  const AxisPlacement have = axis_.now(id);
  if (have.is_varying())
    throw_error(ErrorCode::unsupported, "cannot let '", program_.value(id).name, "' vary along axis '",
                axis_.name(), "': this model needs it ", to_text(wanted), " there");
  if (wanted.is_sharded()) axis_.check_divides(program_.value(id), wanted.dim);
  if (serves(have, wanted)) return id;
  if (have.is_incomplete() && wanted.is_sharded()) return reduced_in_parts(id, wanted);
  if (have.is_sharded() && wanted.is_sharded()) return swapped(id, wanted);
  if (have.is_sharded())
    return exchange(along(along(id, base_ops::all_gather, have.dim, AxisPlacement::replicated()),
                          base_ops::unblock, have.dim, AxisPlacement::replicated()),
                    wanted);
  if (have.is_incomplete()) return exchange(reduced(id), wanted);
  if (wanted.is_sharded()) return along(id, base_ops::slice, wanted.dim, wanted);
  return counted_once(id);
}

Id AxisExchanges::reduced_in_parts(Id id, const AxisPlacement& wanted) {
  const char* const kind =
      axis_.now(id).is_maximum() ? base_ops::reduce_scatter_max : base_ops::reduce_scatter;
  return along(along(id, base_ops::block, wanted.dim, axis_.now(id)), kind, wanted.dim, wanted);
}

// Reshards a value from one dimension to another: an all-to-all of one block per rank.
Id AxisExchanges::swapped(Id id, const AxisPlacement& wanted) {
  const Name from = axis_.now(id).dim;
  const Id blocks = along(id, base_ops::block, wanted.dim, axis_.now(id));
  const auto number = [&](const Name& dim) { return static_cast<double>(place_of(id, dim)); };
  const AttrValue attrs[] = {axis_attr(axis_.axis()),
                             {"dim", number(from)},
                             {"parts", static_cast<double>(axis_.extent())},
                             {"to", number(wanted.dim)}};
  return along(insert(blocks, base_ops::all_to_all, std::span(&blocks, 1), attrs, wanted), base_ops::unblock,
               from, wanted);
}

// Adds an op whose result has placement `result` on this axis, and on other axes that of `id`.
Id AxisExchanges::insert(Id id, const char* kind, std::span<const Id> operands,
                         std::span<const AttrValue> attrs, const AxisPlacement& result) {
  const Id made = program_.add_op_creating(place_.segment, place_.function, Part::input, kind, operands,
                                           attrs, place_.before)[0];
  program_.value(made).placement = program_.value(id).placement;
  axis_.settle(made, result);
  return made;
}

Id AxisExchanges::reduced(Id id) {
  const AttrValue axis = axis_attr(axis_.axis());
  return insert(id, axis_.now(id).is_maximum() ? base_ops::all_reduce_max : base_ops::all_reduce,
                std::span(&id, 1), std::span(&axis, 1), AxisPlacement::replicated());
}

Id AxisExchanges::counted_once(Id id) {
  const Id operands[] = {id, add_first_of_axis(program_, axis_.name())};
  return insert(id, base_ops::gate, operands, {}, AxisPlacement::partial());
}

// Does the same for ops along a dimension. Blocks have one dimension more, at the front.
Id AxisExchanges::along(Id id, const char* kind, const Name& dim, const AxisPlacement& result) {
  const std::string_view from = kind;
  const bool blocks = from == base_ops::unblock || from.starts_with(base_ops::reduce_scatter);
  const AttrValue attrs[] = {axis_attr(axis_.axis()),
                             {"dim", static_cast<double>(place_of(id, dim) - blocks)},
                             {"parts", static_cast<double>(axis_.extent())}};
  return insert(id, kind, std::span(&id, 1), attrs, result);
}

std::ptrdiff_t AxisExchanges::place_of(Id id, const Name& dim) const {
  const std::vector<Dim>& dims = program_.value(id).dims;
  const auto found = std::find_if(dims.begin(), dims.end(), [&](const Dim& d) { return d.name == dim; });
  PRUN_CHECK(found != dims.end(), "'", program_.value(id).name, "' lacks '", dim.view(), "'");
  return found - dims.begin();
}

// ------------------------------------------------------------ standing exchanges

// Handles collectives that exist before the pass: those of models and strategies, and those over axes placed
// before.
class StandingExchanges {
 public:
  explicit StandingExchanges(AxisState& axis);

  // Adds dimensions that the op must have unsharded on this axis: those of an all-to-all over an axis placed
  // before.
  void want_whole(const Op& op, OpShape& shape) const;
  // Checks the placement that a collective over this axis reads, and places its result.
  void meet(const Op& op, const OpShape& shape, AxisSums& sums);

 private:
  AxisState& axis_;
  std::map<Id, std::array<Name, 2>> swapped_blocks_;
};

StandingExchanges::StandingExchanges(AxisState& axis) : axis_(axis) {
  const Program& program = axis.program();
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function) {
        const Op& op = program.op(id);
        if (!op.exchange() || op.exchange()->kind != CommKind::all_to_all) continue;
        OpShape shape = program.shape(op);
        raise(op.def->rule(&shape));
        for (const Id blocks : {op.operands.front(), op.operands.back()})
          swapped_blocks_[blocks] = {shape.wholes[0], shape.wholes[1]};
      }
}

void StandingExchanges::want_whole(const Op& op, OpShape& shape) const {
  for (const Id blocks : {op.operands.front(), op.operands.back()})
    if (const auto swap = swapped_blocks_.find(blocks); swap != swapped_blocks_.end())
      for (const Name& dim : swap->second) shape.whole(dim);
}

void StandingExchanges::meet(const Op& op, const OpShape& shape, AxisSums& sums) {
  const AxisPlacement whole = AxisPlacement::replicated(), parts = AxisPlacement::sharded(shape.wholes[0]);
  const CommKind kind = op.exchange()->kind;
  const Id before = op.operands.front(), after = op.operands.back();
  const bool swaps = kind == CommKind::all_to_all, shifts = kind == CommKind::send,
             largest = op.exchange()->reduction == Reduction::max;
  if (swaps && shape.wholes[1].empty())
    axis_.refuse(
        op,
        "its rule does not mark both the dimension that was in parts and the one that comes to be as "
        "whole (s.whole)");
  // A rule may call a maximum a sum.
  const AxisPlacement from = kind == CommKind::all_gather || swaps || shifts ? parts
                             : largest && axis_.now(before).is_maximum()     ? AxisPlacement::maximum()
                                                                             : AxisPlacement::partial();
  const AxisPlacement to = swaps ? AxisPlacement::sharded(shape.wholes[1])
                           : kind == CommKind::reduce_scatter || shifts ? parts
                                                                        : whole;
  const std::string& name = axis_.program().value(before).name;
  if (axis_.now(before) != from)
    axis_.refuse(op, "'", name, "' is ", to_text(axis_.now(before)), " but must be ", to_text(from),
                 " to be exchanged");
  if (sums.has_twin(before))
    axis_.refuse(op, "what all ranks add alike to '", name,
                 "' lies elsewhere; leave the exchange out, it follows from how the value lies");
  if (before == after) {
    axis_.change(after, to);
    sums.note_summed(after);
  } else {
    axis_.settle(after, to);
  }
}

// ------------------------------------------------------------ at rest

// Places values that exist before a step: parameters, gradients, optimizer state, inputs, scalars.

// Returns the dimensions that ops of forward prefer to split: parameters are stored as these ops use them.
std::vector<Name> preferred_by_forward(const AxisState& axis) {
  const Program& program = axis.program();
  std::vector<Name> list;
  for (Id segment = 0; axis.splits().size() > 1 && segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::forward)) {
      OpShape shape = program.shape(program.op(id));
      raise(program.op(id).def->rule(&shape));
      for (const Name& dim : shape.preferred)
        if (!dim.empty()) list.push_back(dim);
    }
  return list;
}

std::vector<Split> by_preference(const AxisState& axis) {
  std::vector<Split> order = axis.splits();
  const std::vector<Name> first = preferred_by_forward(axis);
  std::stable_partition(order.begin(), order.end(), [&](const Split& split) {
    return std::find(first.begin(), first.end(), split.dim) != first.end();
  });
  return order;
}

// Returns sharded along the first dimension of `order` that the value has. Inputs of a microbatch are sharded
// only along the first dimension requested for everything, since a split of weights may need unsharded
// inputs.
AxisPlacement resting(const AxisState& axis, const Value& value, const std::vector<Split>& order) {
  const bool input = value.role == Role::input || value.role == Role::staging;
  for (const Split& split : input ? axis.splits() : order) {
    if (split.scope == SplitScope::ops || (input && split.scope != SplitScope::everywhere)) continue;
    if (has_dim(value, split.dim)) return AxisPlacement::sharded(split.dim);
    if (input) break;
  }
  return AxisPlacement::replicated();
}

bool counts_over(const AxisState& axis, const Value& value) {
  const auto first = std::find_if(axis.splits().begin(), axis.splits().end(),
                                  [](const Split& split) { return split.scope == SplitScope::everywhere; });
  return std::any_of(value.counted.begin(), value.counted.end(), [&](const Name& name) {
    return name == Name("*") || (first != axis.splits().end() && first->dim == name);
  });
}

// Returns what varies because a strategy asked so (ProgramApi::vary): trained parameters, their gradients and
// optimizer state.
std::set<Id> varied_by(const AxisState& axis) {
  const Program& program = axis.program();
  const std::vector<AxisId>& asked = program.requests().varied;
  std::set<Id> varied;
  if (std::find(asked.begin(), asked.end(), axis.axis()) == asked.end()) return varied;
  for (const Id id : program.parameters()) {
    const Value& parameter = program.value(id);
    if (parameter.gradient == none) continue;
    varied.insert({id, parameter.gradient, parameter.master});
    varied.insert(parameter.states.begin(), parameter.states.end());
    varied.insert(parameter.scales.begin(), parameter.scales.end());
  }
  return varied;
}

// State of another shape than its parameter is sharded only along dimensions that it shares with it.
void place_what_stays(AxisState& axis) {
  const Program& program = axis.program();
  const std::vector<Split> order = by_preference(axis);
  std::map<Id, Id> parameters;  // by that state
  for (Id id = 0; id < program.value_count(); ++id)
    for (const Id state : program.value(id).states)
      if (program.value(state).own_shape) parameters[state] = id;
  const std::set<Id> varied = varied_by(axis);
  for (Id id = 0; id < program.value_count(); ++id) {
    const Value& value = program.value(id);
    if (value.role == Role::activation || value.role == Role::runtime) continue;
    if (varied.contains(id)) {
      axis.settle(id, AxisPlacement::varying());
      continue;
    }
    const auto parameter = parameters.find(id);
    AxisPlacement placement =
        resting(axis, parameter == parameters.end() ? value : program.value(parameter->second), order);
    if (placement.is_sharded() && !has_dim(value, placement.dim)) placement = AxisPlacement::replicated();
    if (counts_over(axis, value)) placement = AxisPlacement::partial();
    axis.settle(id, placement);
  }
}

// The two gradients of a tied parameter are added before they are summed over this axis: both must have the
// same placement.
void check_copies(const Program& program, const AxisState& axis) {
  for (const Id id : program.parameters()) {
    const Value& copy = program.value(id);
    if (copy.copy_of == none || copy.gradient == none) continue;
    const Value& original = program.value(copy.copy_of);
    const AxisPlacement here = axis.now(copy.gradient), there = axis.now(original.gradient);
    if (here != there)
      throw_error(ErrorCode::unsupported, "cannot tie '", original.name, "' between two stages on axis '",
                  axis.name(), "': its gradient is ", to_text(there), " in segment '",
                  program.segment(original.segment).name, "' and ", to_text(here), " in segment '",
                  program.segment(copy.segment).name,
                  "'; untie the parameter, or split other dimensions over this axis");
  }
}

bool is_own(const OpShape& shape, std::size_t i) { return (shape.own >> i & 1u) != 0; }

bool runs_per_microbatch(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

class AxisPass {
 public:
  AxisPass(Program& program, AxisId axis)
      : program_(program),
        axis_(program, axis),
        standing_(axis_),
        exchanges_(axis_),
        sums_(axis_),
        choice_(axis_, sums_) {}

  void run() {
    place_what_stays(axis_);
    const Id step = program_.step_segment(), end = program_.segment_count();
    visit(step, FunctionKind::load);
    visit(step, FunctionKind::begin);
    for (Id s = step + 1; s < end; ++s) visit(s, FunctionKind::zero);
    for (Id s = step + 1; s < end; ++s) visit_forward(s);
    for (Id s = end; s-- > step + 1;) visit_backward(s);
    check_copies(program_, axis_);
    for (FunctionKind kind : {FunctionKind::reduce, FunctionKind::norm})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::finish);
    for (FunctionKind kind : {FunctionKind::diagnose, FunctionKind::update, FunctionKind::periodic})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::report);
  }

 private:
  // ------------------------------------------------------------- the walk

  void visit_forward(Id id) {
    SegmentData& segment = program_.segment(id);
    if (segment.incoming != none) axis_.settle(segment.incoming, handed_on_);
    visit(id, FunctionKind::forward);
    for (CarriedValue& carried : program_.carried())
      if (program_.value(carried.value).segment == id) complete(carried);
    if (segment.outgoing == none) return;
    const AxisPlacement wanted = segment.repeat > 1 ? handed_on_ : handed_on(segment.outgoing);
    program_.segment(id).outgoing =
        exchanges_.converted(segment.outgoing, wanted, id, FunctionKind::forward, none);
    handed_on_ = wanted;
  }

  // Completes a carried value for all its readers, like a boundary.
  void complete(CarriedValue& carried) {
    const Id before = carried.value, segment = program_.value(before).segment;
    const Id whole = exchanges_.converted(before, handed_on(before), segment, FunctionKind::forward, none);
    if (whole == before) return;
    carried.value = whole;
    for (Id behind = segment + 1; behind < program_.segment_count(); ++behind)
      for (const std::vector<Id>& function : program_.segment(behind).functions)
        program_.replace_in(function, before, whole);
  }

  // Returns true if the op adds to the gradient of a carried value. That gradient has the value's placement;
  // if the value is replicated and the first contribution (of the last reader) is partial, it is partial
  // until the value's own segment reads it.
  bool adds_to_carried(const Op& op) const {
    return op.function == FunctionKind::backward && program_.is_carried_gradient(op.operands.back());
  }
  void add_to_carried(const Op& op, Id id) {
    const Id sum = op.operands.back();
    if (carried_begun_.insert(sum).second) {
      const auto of = std::find_if(program_.carried().begin(), program_.carried().end(),
                                   [&](const CarriedValue& carried) { return carried.gradient == sum; });
      const AxisPlacement lies = axis_.now(of->value), given = axis_.now(op.operands.front());
      axis_.settle(sum, lies.is_replicated() && given.is_partial() ? given : lies);
    }
    need(op, id, 0, axis_.now(sum));
    sums_.note_placed(id);
  }

  // The gradient of a boundary has the boundary's placement.
  void visit_backward(Id id) {
    const SegmentData& segment = program_.segment(id);
    if (segment.outgoing_gradient != none)
      axis_.settle(segment.outgoing_gradient, axis_.now(segment.outgoing));
    visit(id, FunctionKind::backward);
    if (const Id gradient = program_.segment(id).incoming_gradient; gradient != none)
      program_.segment(id).incoming_gradient = exchanges_.converted(
          gradient, axis_.now(program_.segment(id).incoming), id, FunctionKind::backward, none);
    visit(id, FunctionKind::backward_weight);
  }

  // Returns the placement of a boundary: a partial sum is reduced, to shards if a split allows it.
  AxisPlacement handed_on(Id id) const {
    if (!axis_.now(id).is_incomplete() && !axis_.is_away(id)) return axis_.now(id);
    for (const Split& split : axis_.splits())
      if (has_dim(program_.value(id), split.dim)) return AxisPlacement::sharded(split.dim);
    return AxisPlacement::replicated();
  }

  void visit(Id segment, FunctionKind kind) {
    exchanges_.begin_function();
    const std::vector<Id> ops = program_.segment(segment).ops(kind);
    for (Id op : ops) place(op);
  }

  // ------------------------------------------------------------- one op

  void place(Id id) {
    const Op op = program_.op(id);
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    if (op.exchange() && program_.axis_of(id) == axis_.axis()) {
      standing_.meet(op, shape, sums_);
      return;
    }
    if (op.exchanges_in_place()) {  // a collective over another axis changes nothing here
      sums_.sum_twin_alike(op, id);
      sums_.note_placed(id);
      return;
    }
    if (adds_to_carried(op)) return add_to_carried(op, id);
    standing_.want_whole(op, shape);
    AxisPlacement left = choice_.passed_on(op, shape);
    const std::optional<Name> split = left.is_incomplete() ? std::nullopt : choice_.split(op, shape);
    if (split) left = choice_.left_by(op, shape, *split);
    if (left.is_replicated() && axis_.reads_varying(op)) left = AxisPlacement::varying();
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) != Access::read) continue;
      // A replicated operand that is added to a partial sum must count once.
      const bool joins = left.is_incomplete() && passes(shape, left, i);
      check_own(op, shape, i, split);
      need(op, id, i, under(split, op.operands[i], joins ? left : AxisPlacement::replicated()));
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::read) continue;
      if (is_own(shape, i)) own_split_[op.operands[i]] = split;
      sums_.produce(op, id, i,
                    under(split, op.operands[i], is_own(shape, i) ? AxisPlacement::replicated() : left),
                    passes(shape, AxisPlacement::maximum(), i));
    }
    sums_.note_placed(id);
  }

  // A value that each rank computed for its own shard must be read by an op with the same split.
  void check_own(const Op& op, const OpShape& shape, std::size_t i, const std::optional<Name>& split) const {
    const auto made = own_split_.find(op.operands[i]);
    if (made == own_split_.end()) return;
    if (!is_own(shape, i) || made->second != split)
      axis_.refuse(op, "'", program_.value(op.operands[i]).name,
                   "' is each rank's own, and the op that made it is split otherwise; recompute that op");
  }

  // Returns sharded if the operand has the split dimension, otherwise `else_where`.
  AxisPlacement under(const std::optional<Name>& split, Id id, const AxisPlacement& else_where) const {
    return split && has_dim(program_.value(id), *split) ? AxisPlacement::sharded(*split) : else_where;
  }

  // Makes operand i available with the wanted placement. `op` is a copy: the program grows.
  void need(const Op& op, Id id, std::size_t i, const AxisPlacement& wanted) {
    const Id operand = op.operands[i];
    const AxisPlacement have = axis_.now(operand);
    if (serves(have, wanted) && !sums_.has_twin(operand)) return;
    const Role role = program_.value(operand).role;
    if (role == Role::gradient || role == Role::runtime || role == Role::state) {
      if (role == Role::runtime && runs_per_microbatch(op.function))
        axis_.refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name,
                     "') is ", to_text(have),
                     " that goes on growing; it is whole at the end of the step, in 'finish'");
      if (!have.is_incomplete() || !wanted.is_replicated() || role == Role::state) {
        axis_.refuse_split_blocks(op);
        axis_.refuse(
            op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name, "') is ",
            sums_.has_twin(operand) ? "a sum of which every rank has counted a part alike" : to_text(have),
            " but is needed ", to_text(wanted));
      }
      sums_.sum_in_place(operand, op, id);
      return;
    }
    const Id changed = exchanges_.converted(operand, wanted, op.segment, op.function, id);
    program_.replace_operand(id, i, changed);
  }

  Program& program_;
  AxisState axis_;
  StandingExchanges standing_;
  AxisExchanges exchanges_;
  AxisSums sums_;
  OpChoice choice_;
  std::map<Id, std::optional<Name>> own_split_;  // split of the op that wrote a value private to each rank
  AxisPlacement handed_on_;
  std::set<Id> carried_begun_;  // gradients with a first contribution
};

}  // namespace

void place_on_mesh(Program& program) {
  split_ops(program);
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) AxisPass(program, axis).run();
  exchange_directly(program);
  program.set_placed();
}

}  // namespace prun
