#include "placement/axis_sums.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {

// ------------------------------------------------------------------- axis state

bool lists(const Name (&names)[max_marks], const Name& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool has_dim(const Value& value, const Name& name) {
  return std::any_of(value.dims.begin(), value.dims.end(), [&](const Dim& d) { return d.name == name; });
}

AxisState::AxisState(Program& program, AxisId axis) : program_(program), axis_(axis) {
  for (const bool ops : {false, true})
    for (const Split& split : program.requests().splits)
      if (split.axis == axis && (split.scope == SplitScope::ops) == ops) splits_.push_back(split);
}

bool AxisState::is_away(Id id) const {
  return now(id).is_sharded() && std::any_of(splits_.begin(), splits_.end(), [&](const Split& split) {
           return split.scope == SplitScope::ops && split.dim == now(id).dim;
         });
}

bool AxisState::reads_varying(const Op& op) const {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] != none && op.access(i) != Access::write && now(op.operands[i]).is_varying())
      return true;
  return false;
}

void AxisState::settle(Id id, const AxisPlacement& placement) {
  Value& value = program_.value(id);
  if (placement.is_sharded()) check_divides(value, placement.dim);
  value.placement.resize(program_.mesh().size());
  value.placement[axis_] = placement;
  now_[id] = placement;
}

void AxisState::check_divides(const Value& value, const Name& name) const {
  std::int64_t parts = extent();
  std::string axes;
  for (AxisId axis = 0; axis < axis_; ++axis)
    if (value.on(axis) == AxisPlacement::sharded(name)) {
      parts *= program_.mesh().extent(axis);
      axes += in_recipe(axis) + " x ";
    }
  for (const Dim& dim : value.dims)
    if (dim.name == name && dim.extent % parts != 0) refuse_parts(value, dim, parts, axes + in_recipe(axis_));
}

void AxisState::refuse_split_blocks(const Op& op) const {
  for (const Id id : op.operands)
    if (id != none && program_.value(id).block > 1) refuse_blocks(program_.value(id));
}

void AxisState::refuse_blocks(const Value& scales) const {
  throw_error(ErrorCode::unsupported, "cannot keep moments in 8 bits: axis '", name(),
              "' splits a dimension of '", scales.name, "' within blocks of ", scales.block,
              " elements; set precision.moments = \"bf16\", or use fewer ranks on that axis");
}

// If the recipe gave the extent, names the recipe's key.
void AxisState::refuse_parts(const Value& value, const Dim& dim, std::int64_t parts,
                             const std::string& axes) const {
  if (value.block > 1) refuse_blocks(value);
  if (const RecipeSize* size = program_.recipe_size(dim))
    throw_error(ErrorCode::unsupported, size->key, " = ", size->value, " cannot be split over ", axes,
                "; choose a multiple of ", parts);
  throw_error(ErrorCode::unsupported, "cannot split dimension '", dim.name.view(), "' of '", value.name,
              "' over axis '", name(), "': ", dim.extent, " is not a multiple of ", parts);
}

std::string AxisState::in_recipe(AxisId axis) const {
  const Axis& is = program_.mesh().axes()[axis];
  return detail::concat(is.name, " = ", is.extent);
}

namespace {

// ------------------------------------------------------------------- axis sums

// ------------------------------------------------------------ gradient sums

// Gradient sums over the ranks of an axis go to a separate function, so that they can overlap backward.

template <class Wanted>
Id first_in_reduce(const Program& program, Id segment, Wanted&& wanted) {
  for (Id op : program.segment(segment).ops(FunctionKind::reduce))
    if (wanted(program.op(op))) return op;
  return none;
}

// Adds an in-place all-reduce of the value before op `before`: a sum, or a maximum if the value is a partial
// maximum.
void add_sum(const AxisState& axis, Id segment, FunctionKind function, Id id, Id before) {
  const AttrValue along = axis_attr(axis.axis());
  const char* const kind =
      axis.now(id).is_maximum() ? base_ops::all_reduce_max_update : base_ops::all_reduce_update;
  axis.program().add_op(segment, function, Part::input, kind, {id}, std::span(&along, 1), before);
}

// Sums a gradient in `reduce`. If `precision.reduce` differs from the type of the gradient, the function
// first casts all gradients, then reduces, then casts all back, so that the all-reduces form one collective.
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
    // The gradient was summed over another axis before: reduce that sum again before it is cast back.
    const Id narrow = program.op(known).operands.back();
    add_sum(axis, segment, FunctionKind::reduce, narrow, first_in_reduce(program, segment, casts_back));
    axis.change(narrow, AxisPlacement::replicated());
    return;
  }
  const Id exchange =
      first_in_reduce(program, segment, [](const Op& op) { return op.exchange() != nullptr; });
  const Id narrow = program.add_op_creating(segment, FunctionKind::reduce, Part::input, base_ops::cast,
                                            std::span(&id, 1), cast_attrs(kept, travels), exchange)[0];
  program.value(narrow).placement = program.value(id).placement;
  add_sum(axis, segment, FunctionKind::reduce, narrow, first_in_reduce(program, segment, casts_back));
  program.add_op(segment, FunctionKind::reduce, Part::input, base_ops::cast, {narrow, id},
                 cast_attrs(travels, kept));
}

}  // namespace

void AxisSums::sum_in_place(Id id, const Op& op, Id before) {
  if (program_.value(id).role == Role::gradient)
    sum_gradient(axis_, id);
  else
    add_sum(axis_, op.segment, op.function, id, before);
  summed_.insert(id);
  axis_.change(id, AxisPlacement::replicated());
  if (const auto twin = twins_.find(id); twin != twins_.end()) {
    // Add what all ranks counted identically, once.
    program_.add_op(op.segment, op.function, Part::input, base_ops::accumulate, {twin->second, id}, {},
                    before);
    twins_.erase(twin);
  }
}

void AxisSums::produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement, bool folds) {
  const Id id = op.operands[i];
  const Role role = program_.value(id).role;
  if (role != Role::activation) check_joins(op, i, placement);
  if (op.def->clears) {
    cleared_.insert(id);
  } else if (role == Role::activation) {
    axis_.settle(id, placement);
  } else if (program_.value(id).on(axis_.axis()).is_varying() && role != Role::runtime) {
    // A varying value keeps varying, whatever is added to it.
    if (placement.is_sharded() || placement.is_maximum())
      axis_.refuse(op, "'", program_.value(id).name, "' is each rank's own but would be written ",
                   to_text(placement));
  } else if (placement.is_sharded() || axis_.now(id).is_sharded()) {
    if (axis_.now(id) != placement)
      axis_.refuse(op, "'", program_.value(id).name, "' is ", to_text(axis_.now(id)),
                   " but would be written ", to_text(placement));
  } else if (op.access(i) == Access::write || role == Role::runtime || role == Role::gradient) {
    if (placement.is_maximum() || (axis_.now(id).is_maximum() && cleared_.count(id) == 0))
      fold(op, i, placement, folds);
    else
      accumulate(op, op_id, i, placement);
  } else if (placement.is_incomplete() || (placement.is_varying() && reads_varying_tensors(op))) {
    axis_.refuse(op, "'", program_.value(id).name, "' would become ", to_text(placement));
  }
}

// Returns true if an operand tensor varies. Scalars of the step, such as `keep`, are checked later.
bool AxisSums::reads_varying_tensors(const Op& op) const {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] != none && op.access(i) == Access::read &&
        program_.value(op.operands[i]).role != Role::runtime && axis_.now(op.operands[i]).is_varying())
      return true;
  return false;
}

void AxisSums::accumulate(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement) {
  const Id id = op.operands[i];
  const bool cleared = cleared_.erase(id) != 0;
  if (cleared || op.access(i) == Access::write || axis_.now(id) == placement) {
    axis_.settle(id, placement);
    return;
  }
  if (program_.value(id).role != Role::runtime || placement.is_varying() || axis_.now(id).is_varying())
    axis_.refuse(op, "adds ", to_text(placement), " to '", program_.value(id).name, "', which is ",
                 to_text(axis_.now(id)), "; untie the parameter, or split other dimensions over this axis");
  if (placement.is_partial()) {
    if (summed_.count(id) != 0)
      axis_.refuse(op, "adds a partial sum to '", program_.value(id).name,
                   "', which has been read whole before");
    // Everything added so far was replicated: it belongs to the twin.
    redirect(id, twin_of(id));
    axis_.settle(id, placement);
  } else {
    program_.replace_operand(op_id, i, twin_of(id));
  }
}

// Refuses to add sums to maxima and maxima to sums.
void AxisSums::check_joins(const Op& op, std::size_t i, const AxisPlacement& placement) const {
  const Value& value = program_.value(op.operands[i]);
  const bool begins = op.def->clears || op.access(i) == Access::write || cleared_.count(op.operands[i]) != 0;
  const AxisPlacement lies = begins ? AxisPlacement::replicated() : axis_.now(op.operands[i]);
  const bool a_sum = value.role == Role::gradient || lies.is_partial();
  if ((placement.is_maximum() && a_sum) || (placement.is_partial() && lies.is_maximum()))
    axis_.refuse(op, "adds ", to_text(placement), " to '", value.name, "', which is ",
                 lies.is_maximum() ? to_text(lies) : "a sum");
}

// Takes the maximum. Replicated and partial contributions may mix: the maximum over ranks is the same.
void AxisSums::fold(const Op& op, std::size_t i, const AxisPlacement& placement, bool folds) {
  const Id id = op.operands[i];
  cleared_.erase(id);
  if (op.access(i) == Access::write) {
    axis_.settle(id, placement);
    return;
  }
  if (!folds || has_twin(id))
    axis_.refuse(
        op, "changes '", program_.value(id).name, "', a partial maximum, and ",
        has_twin(id) ? "a part of it is a sum" : "its rule does not say that maxima pass (pass_maximum)");
  axis_.settle(id, AxisPlacement::maximum());
}

Id AxisSums::twin_of(Id id) {
  if (const auto known = twins_.find(id); known != twins_.end()) return known->second;
  const Id step = program_.step_segment();
  Value like = program_.value(id);
  like.name += "@" + axis_.name();
  const Id twin = program_.add_value(std::move(like));
  program_.add_op(step, FunctionKind::begin, Part::input, base_ops::zero, {twin}, {});
  axis_.settle(twin, AxisPlacement::replicated());
  return twins_[id] = twin;
}

// Copies an in-place collective over another axis for the twin, if both are partial on that axis.
void AxisSums::sum_twin_alike(const Op& op, Id id) {
  if (const auto twin = twins_.find(op.operands[0]); twin != twins_.end())
    program_.add_copy(id, op.function, {twin->second}, id);
}

// Redirects all additions to `id` so far, and their readers, to `twin`.
void AxisSums::redirect(Id id, Id twin) {
  for (Id op_id : placed_)
    for (std::size_t i = 0; i < program_.op(op_id).operands.size(); ++i) {
      const Op& op = program_.op(op_id);
      if (op.operands[i] != id || op.def->clears) continue;
      if (op.access(i) == Access::write)
        axis_.refuse(op, "writes '", program_.value(id).name,
                     "', to which partial sums are added later; clear it and add to it instead");
      program_.replace_operand(op_id, i, twin);
    }
}

namespace {

// ------------------------------------------------------------------- op choice

// Returns true if `is` holds for an operand that exists before the op runs.
template <class Is>
bool any_reads(const Program& program, const Op& op, Is&& is) {
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id id = op.operands[i];
    const bool made =
        id != none && program.value(id).role == Role::activation && op.access(i) == Access::write;
    if (id != none && !made && is(id)) return true;
  }
  return false;
}

}  // namespace

std::optional<Name> OpChoice::split(const Op& op, const OpShape& shape) const {
  for (const Name& dim : shape.preferred)
    if (is_asked(dim) && !lists(shape.wholes, dim) &&
        any_reads(program_, op, [&](Id id) { return has(id, dim); }))
      return dim;
  for (const Split& split : axis_.splits())
    if (!lists(shape.wholes, split.dim) && can_be_had(op, shape, split)) return split.dim;
  return std::nullopt;
}

bool OpChoice::is_asked(const Name& dim) const {
  return std::any_of(axis_.splits().begin(), axis_.splits().end(),
                     [&](const Split& split) { return split.dim == dim; });
}

// Returns true if every rank keeps state with that dimension unsharded: no rank may update a part of it
// alone.
bool OpChoice::has_whole_state(const Op& op, const Name& dim) const {
  return std::any_of(op.operands.begin(), op.operands.end(), [&](Id id) {
    return id != none && program_.value(id).role == Role::state && has(id, dim) &&
           axis_.now(id).is_replicated();
  });
}

// Returns true if an operand can be had sharded. A partial sum that must be reduced anyway is cheaper to
// reduce-scatter. A value that an op-only split left sharded along another dimension returns here; conversely
// an op-only split applies if the op needs unsharded what is sharded now.
bool OpChoice::can_be_had(const Op& op, const OpShape& shape, const Split& split) const {
  if (has_whole_state(op, split.dim)) return false;
  return any_reads(program_, op, [&](Id id) {
    if (axis_.now(id) == AxisPlacement::sharded(split.dim)) return true;
    if (program_.value(id).role != Role::activation || !has(id, split.dim)) return false;
    if (axis_.now(id).is_incomplete()) return true;
    if (!axis_.now(id).is_sharded()) return false;
    return split.scope == SplitScope::ops ? lists(shape.wholes, axis_.now(id).dim) : axis_.is_away(id);
  });
}

bool passes(const OpShape& shape, const AxisPlacement& incomplete, std::size_t i) {
  return ((incomplete.is_maximum() ? shape.monotone : shape.linear) >> i & 1u) != 0;
}

AxisPlacement OpChoice::passed_on(const Op& op, const OpShape& shape) const {
  for (const AxisPlacement& one : {AxisPlacement::partial(), AxisPlacement::maximum()})
    if (passes_on(op, shape, one)) return one;
  return AxisPlacement::replicated();
}

// Returns true if the op passes the placement `one` on: all operands in which it is linear (or monotone) have
// it, no other operand is sharded, and the host reads no result. Replicated operands do not change a maximum.
bool OpChoice::passes_on(const Op& op, const OpShape& shape, const AxisPlacement& one) const {
  bool any = false;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    if (op.access(i) == Access::write && program_.value(op.operands[i]).role == Role::staging) return false;
    if (op.access(i) != Access::read) continue;
    const AxisPlacement lies = axis_.now(op.operands[i]);
    if (!passes(shape, one, i) && lies.is_sharded()) return false;
    if (!passes(shape, one, i) || (one.is_maximum() && lies.is_replicated())) continue;
    if (lies != one || sums_.has_twin(op.operands[i])) return false;
    any = true;
  }
  return any;
}

AxisPlacement OpChoice::left_by(const Op& op, const OpShape& shape, const Name& split) const {
  const bool sums = lists(shape.sums, split), maxes = lists(shape.maxes, split);
  if (sums && maxes)
    axis_.refuse(op, "its rule marks '", split.view(),
                 "' as summed over and as what the largest is taken of; make two ops of it");
  return sums ? AxisPlacement::partial() : maxes ? AxisPlacement::maximum() : AxisPlacement::replicated();
}

}  // namespace prun
