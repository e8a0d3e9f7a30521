#include "placement/placement.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "placement/at_rest.hpp"
#include "placement/axis_exchanges.hpp"
#include "placement/direct_exchanges.hpp"
#include "placement/op_choice.hpp"
#include "placement/split_ops.hpp"
#include "placement/standing_exchanges.hpp"

namespace prun {
namespace {

// Checks that the gradients of a parameter that two stages hold are added up before either is summed over
// this axis.
void check_copies(const Program& program, const AxisState& axis) {
  for (const Id id : program.parameters()) {
    const Value& copy = program.value(id);
    if (copy.copy_of == none || copy.gradient == none) continue;
    const Value& original = program.value(copy.copy_of);
    const AxisPlacement here = axis.now(copy.gradient), there = axis.now(original.gradient);
    if (here != there)
      throw_error(ErrorCode::unsupported, "axis '", axis.name(), "': two stages hold '", original.name,
                  "', and its gradient is ", to_text(there), " in segment '",
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

// Places values on one axis of the mesh.
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
    for (FunctionKind kind : {FunctionKind::diagnose, FunctionKind::update})
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

  // Makes a carried value whole for all its readers, as the value handed on is.
  void complete(CarriedValue& carried) {
    const Id before = carried.value, segment = program_.value(before).segment;
    const Id whole = exchanges_.converted(before, handed_on(before), segment, FunctionKind::forward, none);
    if (whole == before) return;
    carried.value = whole;
    for (Id behind = segment + 1; behind < program_.segment_count(); ++behind)
      for (const std::vector<Id>& function : program_.segment(behind).functions)
        for (const Id op : function)
          for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
            if (program_.op(op).operands[i] == before) program_.replace_operand(op, i, whole);
  }

  // Says whether the op adds to the gradient of a carried value, which has the value's placement. If every
  // rank has the value alike, the first summand, the last reader's, says whether ranks have a summand each:
  // then it stays so until the value's own segment reads it.
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

  // Visits backward: gradients of what is handed on have its placement.
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

  // Returns how a value is handed on: a partial sum is summed first, in parts if that is possible.
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
    if (op.exchanges_in_place()) {  // an exchange over another axis: here it changes nothing
      sums_.sum_twin_alike(op, id);
      sums_.note_placed(id);
      return;
    }
    if (adds_to_carried(op)) return add_to_carried(op, id);
    standing_.want_whole(op, shape);
    AxisPlacement left = choice_.passed_on(op, shape);
    const std::optional<Name> split = left.is_incomplete() ? std::nullopt : choice_.split(op, shape);
    if (split) left = choice_.left_by(op, shape, *split);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) != Access::read) continue;
      // A linear operand that is added to a partial sum must count once.
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

  // Checks that a value of each rank's own is read by an op that is split as the op that made it was.
  void check_own(const Op& op, const OpShape& shape, std::size_t i, const std::optional<Name>& split) const {
    const auto made = own_split_.find(op.operands[i]);
    if (made == own_split_.end()) return;
    if (!is_own(shape, i) || made->second != split)
      axis_.refuse(op, "'", program_.value(op.operands[i]).name,
                   "' is each rank's own, and the op that made it is split otherwise; recompute that op");
  }

  // Returns the placement of an operand when the op is split along that dimension; an operand without it has
  // the other placement given.
  AxisPlacement under(const std::optional<Name>& split, Id id, const AxisPlacement& else_where) const {
    return split && has_dim(program_.value(id), *split) ? AxisPlacement::sharded(*split) : else_where;
  }

  // Ensures that operand i is read with the wanted placement. `op` is a copy: the program grows.
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
  std::map<Id, std::optional<Name>> own_split_;  // split of the op that made each rank's own value
  AxisPlacement handed_on_;
  std::set<Id> carried_begun_;  // gradients that a reader has added to
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
