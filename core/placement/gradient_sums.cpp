#include "placement/gradient_sums.hpp"

#include "program/passes.hpp"

namespace prun {
namespace {

template <class Wanted>
Id first_in_reduce(const Program& program, Id segment, Wanted&& wanted) {
  for (Id op : program.segment(segment).ops(FunctionKind::reduce))
    if (wanted(program.op(op))) return op;
  return none;
}

}  // namespace

void add_sum(const AxisState& axis, Id segment, FunctionKind function, Id id, Id before) {
  const AttrValue along = axis_attr(axis.axis());
  const char* const kind = axis.now(id).is_maximum() ? "all_reduce_max_update" : "all_reduce_update";
  axis.program().add_op(segment, function, Part::input, kind, {id}, std::span(&along, 1), before);
}

void sum_gradient(AxisState& axis, Id id) {
  Program& program = axis.program();
  const Id segment = program.value(id).segment;
  const DType kept = program.value(id).dtype, travels = program.precision().reduce;
  if (kept == travels) {
    add_sum(axis, segment, FunctionKind::reduce, id, none);
    return;
  }
  const auto casts_back = [&](const Op& op) {
    return op.def->converts && program.value(op.operands.back()).role == Role::gradient;
  };
  const Id known = first_in_reduce(
      program, segment, [&](const Op& op) { return op.def->converts && op.operands.front() == id; });
  if (known != none) {
    // The gradient has been summed over another axis: the sum of those sums is what is cast back.
    const Id narrow = program.op(known).operands.back();
    add_sum(axis, segment, FunctionKind::reduce, narrow, first_in_reduce(program, segment, casts_back));
    axis.change(narrow, AxisPlacement::replicated());
    return;
  }
  const Id exchange =
      first_in_reduce(program, segment, [](const Op& op) { return op.exchange() != nullptr; });
  const Id narrow = program.add_op_creating(segment, FunctionKind::reduce, Part::input, "cast",
                                            std::span(&id, 1), cast_attrs(kept, travels), exchange)[0];
  program.value(narrow).placement = program.value(id).placement;
  add_sum(axis, segment, FunctionKind::reduce, narrow, first_in_reduce(program, segment, casts_back));
  program.add_op(segment, FunctionKind::reduce, Part::input, "cast", {narrow, id}, cast_attrs(travels, kept));
}

}  // namespace prun
