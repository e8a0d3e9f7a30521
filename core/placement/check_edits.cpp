// For example: behind placement, `norm` of a gradient that every rank of an axis has a summand of is no norm.
// An op that squares it is refused with its operand; an op that is linear in it gives summands again, and an
// all_reduce in between makes it whole.
//
// The functions are walked in the order of a step, since in-place exchanges complete values on the way: a
// gradient has summands until `reduce`, a sum of the step until `finish`.
#include "placement/check_edits.hpp"

#include <algorithm>
#include <optional>

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
  AxisWalk(Program& program, AxisId axis, const std::set<Id>& added)
      : program_(program), axis_(program, axis), added_(added) {}

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
        exchange(op, added_.count(id) != 0);
      else if (added_.count(id) != 0 && !op.exchanges_in_place() && !uses_flat_values(op))
        place(op);
    }
  }

  // An exchange in place makes a value whole from here on. One that the strategy added writes what its kind
  // says.
  void exchange(const Op& op, bool added) {
    if (op.exchanges_in_place()) {
      if (op.exchange()->kind == CommKind::all_reduce)
        axis_.change(op.operands[0], AxisPlacement::replicated());
      return;
    }
    if (!added) return;
    const CommKind kind = op.exchange()->kind;
    if (kind != CommKind::all_reduce && kind != CommKind::all_gather)
      axis_.refuse(
          op,
          "an exchange of that kind cannot be added behind placement, which could not say what each rank "
          "has of its result; add it in a phase before, or take all_reduce or all_gather");
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

  // Checks operands that every rank has alike.
  void check_others(const Op& op, const OpShape& rule, const std::optional<Name>& split,
                    const AxisPlacement& passed) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (!reads(op, i)) continue;
      const AxisPlacement lies = axis_.now(op.operands[i]);
      if (split && !lies.is_sharded() && has_dim(program_.value(op.operands[i]), *split))
        refuse(op, i, "has another operand of which each rank has a part along that dimension");
      if (passed.is_partial() && passes(rule, passed, i) && !lies.is_partial())
        refuse(
            op, i,
            "adds it to summands, so that it would count once for each rank; scale it by one over the ranks");
      if (passed.is_incomplete() && split)
        refuse(op, i, "has one operand in parts and another that is not complete");
    }
  }

  AxisPlacement left(const Op& op, std::size_t i, const OpShape& rule, const std::optional<Name>& split,
                     const AxisPlacement& passed) const {
    if (split && has_dim(program_.value(op.operands[i]), *split)) return AxisPlacement::sharded(*split);
    if (!split) return passed;
    if (lists(rule.sums, *split)) return AxisPlacement::partial();
    return lists(rule.maxes, *split) ? AxisPlacement::maximum() : AxisPlacement::replicated();
  }

  // A value that the op makes gets its placement; one that was there must have it. Summands of replicated
  // operands, in a value that is summed later, would count once for each rank.
  void set(const Op& op, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const Value& value = program_.value(id);
    const bool makes = op.access(i) == Access::write;
    if (makes && value.role == Role::activation) {
      axis_.settle(id, placement);
      return;
    }
    const AxisPlacement lies = axis_.now(id);
    if (lies != placement)
      axis_.refuse(op, "writes '", value.name, "' as ", to_text(placement), ", which is ", to_text(lies),
                   " there");
  }

  bool reads(const Op& op, std::size_t i) const {
    return op.operands[i] != none && op.access(i) == Access::read;
  }

  // Flat values are left to the proof of the plan, which knows what their bytes hold.
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
  const std::set<Id>& added_;
};

}  // namespace

EditCheck::EditCheck(Program& program) : program_(program), first_value_(program.value_count()) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function) before_.insert(id);
}

// What the core adds for a strategy, as recomputation, has values that are placed already.
bool EditCheck::is_added(Id id) const {
  if (before_.count(id) != 0) return false;
  const Op& op = program_.op(id);
  if (op.def->copies) return !op.again;  // a copy of what was completed in place is complete
  bool makes = false, places = false;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none || op.access(i) != Access::write) continue;
    makes = true;
    places |= program_.value(op.operands[i]).placement.empty();
  }
  return places || (!makes && !op.again);
}

std::set<Id> EditCheck::added() const {
  std::set<Id> ops;
  for (Id segment = 0; segment < program_.segment_count(); ++segment)
    for (const std::vector<Id>& function : program_.segment(segment).functions)
      for (const Id id : function)
        if (is_added(id)) ops.insert(id);
  return ops;
}

// The sum over the ranks follows from placement.
void EditCheck::check_tallies() const {
  for (Id id = first_value_; id < program_.value_count(); ++id)
    if (program_.value(id).tally)
      throw_error(ErrorCode::bad_input, "tally '", program_.value(id).name,
                  "' is declared behind placement, which would sum it over the ranks; declare it in phase "
                  "model, shard or partition");
}

void EditCheck::run() const {
  if (program_.mesh().world() > 1) check_tallies();
  const std::set<Id> ops = added();
  if (ops.empty()) return;
  for (AxisId axis = 0; axis < program_.mesh().size(); ++axis)
    if (program_.mesh().extent(axis) > 1) AxisWalk(program_, axis, ops).run();
}

}  // namespace prun
