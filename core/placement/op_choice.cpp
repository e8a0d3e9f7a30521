#include "placement/op_choice.hpp"

#include <algorithm>

namespace prun {
namespace {

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
