// For example: before `reduce`, each rank of a data-parallel axis has a partial sum of a gradient. Its square
// on each rank is not a part of the squared gradient, so an op that squares it is refused. A cast is linear:
// its result is a partial sum too. An all_reduce in front of the op completes the gradient.
//
// The walk visits functions in the order of a step, because collectives complete values in place on the way:
// gradients in `reduce`, tallies in `finish`.
#include "placement/check_edits.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "placement/axis_state.hpp"
#include "placement/op_choice.hpp"

namespace prun {
namespace {

constexpr FunctionKind before_forward[] = {FunctionKind::load, FunctionKind::begin, FunctionKind::zero,
                                           FunctionKind::gather, FunctionKind::clear};
constexpr FunctionKind behind_backward[] = {
    FunctionKind::tie,      FunctionKind::reduce, FunctionKind::norm,  FunctionKind::finish,
    FunctionKind::diagnose, FunctionKind::update, FunctionKind::renew, FunctionKind::report};

// Walks a step along one axis of the mesh.
class AxisWalk {
 public:
  AxisWalk(Program& program, AxisId axis, const std::set<Id>& edited, Id first_added)
      : program_(program),
        axis_(program, axis),
        sums_(axis_),
        choice_(axis_, sums_),
        edited_(edited),
        first_added_(first_added) {}

  void run() {
    const Id end = program_.segment_count();
    for (const FunctionKind kind : before_forward)
      for (Id s = 0; s < end; ++s) visit(s, kind);
    for (Id s = 0; s < end; ++s) visit(s, FunctionKind::forward);
    for (Id s = end; s-- > 0;)
      for (const FunctionKind kind : backward_functions) visit(s, kind);
    for (const FunctionKind kind : behind_backward)
      for (Id s = 0; s < end; ++s) visit(s, kind);
  }

 private:
  void visit(Id segment, FunctionKind kind) {
    for (const Id id : program_.segment(segment).ops(kind)) {
      const Op& op = program_.op(id);
      if (op.exchange() && program_.axis_of(id) == axis_.axis())
        exchange(op, edited_.contains(id));
      else if (edited_.contains(id) && !op.exchanges_in_place() && !uses_flat_values(op))
        place(op);
    }
  }

  // A collective in place completes its value from here on. The result of one that the strategy edited
  // follows from its kind.
  void exchange(const Op& op, bool edited) {
    if (op.exchanges_in_place()) {
      if (op.exchange()->kind == CommKind::all_reduce)
        axis_.change(op.operands[0], AxisPlacement::replicated());
      return;
    }
    if (!edited) return;
    const CommKind kind = op.exchange()->kind;
    if (kind != CommKind::all_reduce && kind != CommKind::all_gather)
      axis_.refuse(
          op,
          "a collective of that kind cannot be added after placement, because the placement of its result "
          "would be unknown; add it in an earlier phase, or use all_reduce or all_gather");
    set(op, op.operands.size() - 1, AxisPlacement::replicated());
  }

  // Finds along which dimension the op is split, or which incomplete values it passes on.
  void place(const Op& op) {
    OpShape rule = program_.shape(op);
    raise(op.def->rule(&rule));
    std::optional<Name> split;
    AxisPlacement passed = AxisPlacement::replicated();
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::write) continue;
      const AxisPlacement lies = axis_.now(op.operands[i]);
      if (lies.is_sharded()) {
        if (lists(rule.wholes, lies.dim)) refuse(op, i, "needs that dimension whole");
        if (split && *split != lies.dim) refuse(op, i, "has another operand split along another dimension");
        split = lies.dim;
      } else if (lies.is_incomplete() && passes(rule, lies, i)) {
        passed = lies;
      } else if (lies.is_incomplete() && reads(op, i)) {
        refuse(op, i, "needs it complete; add an all_reduce before it");
      }
    }
    check_others(op, rule, split, passed);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read)
        set(op, i, left(op, i, rule, split, passed));
  }

  // Checks operands that are replicated.
  void check_others(const Op& op, const OpShape& rule, const std::optional<Name>& split,
                    const AxisPlacement& passed) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (!reads(op, i)) continue;
      const AxisPlacement lies = axis_.now(op.operands[i]);
      if (split && !lies.is_sharded() && has_dim(program_.value(op.operands[i]), *split))
        refuse(op, i, "has another operand of which each rank has a part along that dimension");
      if (passed.is_partial() && passes(rule, passed, i) && !lies.is_partial())
        refuse(op, i, "adds it to a partial sum, where it would count once per rank; scale it by 1 / ranks");
      if (passed.is_incomplete() && split)
        refuse(op, i, "mixes a sharded operand with one that is not complete");
    }
  }

  AxisPlacement left(const Op& op, std::size_t i, const OpShape& rule, const std::optional<Name>& split,
                     const AxisPlacement& passed) const {
    if (!split) return passed;
    if (has_dim(program_.value(op.operands[i]), *split)) return AxisPlacement::sharded(*split);
    return choice_.left_by(op, rule, *split);
  }

  // Gives a new value its placement. A value that was there must have it already: a replicated operand that
  // an op adds to a partial sum would count once per rank.
  void set(const Op& op, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    if (id >= first_added_ && op.access(i) == Access::write && program_.value(id).role == Role::activation) {
      axis_.settle(id, placement);
      return;
    }
    const AxisPlacement lies = axis_.now(id);
    if (lies != placement)
      axis_.refuse(op, "writes '", program_.value(id).name, "' as ", to_text(placement), ", which is ",
                   to_text(lies), " there");
  }

  bool reads(const Op& op, std::size_t i) const {
    return op.operands[i] != none && op.access(i) == Access::read;
  }

  // The proof of the plan checks flat values: it knows what their bytes hold.
  bool uses_flat_values(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](Id id) { return id != none && program_.value(id).bucket >= 0; });
  }

  [[noreturn]] void refuse(const Op& op, std::size_t i, const char* why) const {
    const Id id = op.operands[i];
    axis_.refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(id).name, "') is ",
                 to_text(axis_.now(id)), ", and the op ", why);
  }

  Program& program_;
  AxisState axis_;
  AxisSums sums_;
  OpChoice choice_;
  const std::set<Id>& edited_;
  Id first_added_;  // the first value that the strategy may have added
};

}  // namespace

// Refuses tallies that placement did not see, because it adds the sum over the ranks.
void EditCheck::check_tallies() const {
  for (Id id = first_value_; id < program_.value_count(); ++id)
    if (program_.value(id).tally)
      throw_error(ErrorCode::bad_input, "tally '", program_.value(id).name,
                  "' is declared after placement, which adds the sum over the ranks; declare it in phase "
                  "model, shard or partition");
}

void EditCheck::run() const {
  if (program_.mesh().world() > 1) check_tallies();
  const std::set<Id> edited = program_.take_edits();
  if (edited.empty()) return;
  for (AxisId axis = 0; axis < program_.mesh().size(); ++axis)
    if (program_.mesh().extent(axis) > 1) AxisWalk(program_, axis, edited, first_value_).run();
}

}  // namespace prun
