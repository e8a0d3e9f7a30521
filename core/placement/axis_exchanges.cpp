#include "placement/axis_exchanges.hpp"

#include <algorithm>

#include "program/passes.hpp"
#include "program/step.hpp"

namespace prun {

bool serves(const AxisPlacement& have, const AxisPlacement& wanted) {
  return have == wanted || (have.is_replicated() && wanted.is_maximum());
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
  if (wanted.is_sharded()) axis_.check_divides(program_.value(id), wanted.dim);
  if (serves(have, wanted)) return id;
  if (have.is_incomplete() && wanted.is_sharded()) return reduced_in_parts(id, wanted);
  if (have.is_sharded() && wanted.is_sharded()) return swapped(id, wanted);
  if (have.is_sharded())
    return exchange(along(along(id, "all_gather", have.dim, AxisPlacement::replicated()), "unblock", have.dim,
                          AxisPlacement::replicated()),
                    wanted);
  if (have.is_incomplete()) return exchange(reduced(id), wanted);
  if (wanted.is_sharded()) return along(id, "slice", wanted.dim, wanted);
  return counted_once(id);
}

Id AxisExchanges::reduced_in_parts(Id id, const AxisPlacement& wanted) {
  const char* const kind = axis_.now(id).is_maximum() ? "reduce_scatter_max" : "reduce_scatter";
  return along(along(id, "block", wanted.dim, axis_.now(id)), kind, wanted.dim, wanted);
}

// Moves a value from the dimension on which it is sharded to another: each rank has blocks of the latter, one
// for each rank, and gets blocks of the former.
Id AxisExchanges::swapped(Id id, const AxisPlacement& wanted) {
  const Name from = axis_.now(id).dim;
  const Id blocks = along(id, "block", wanted.dim, axis_.now(id));
  const auto number = [&](const Name& dim) { return static_cast<double>(place_of(id, dim)); };
  const AttrValue attrs[] = {axis_attr(axis_.axis()),
                             {"dim", number(from)},
                             {"parts", static_cast<double>(axis_.extent())},
                             {"to", number(wanted.dim)}};
  return along(insert(blocks, "all_to_all", std::span(&blocks, 1), attrs, wanted), "unblock", from, wanted);
}

// Inserts an op whose result has the stated placement on this axis, and its operand's placement on the
// others.
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
  return insert(id, axis_.now(id).is_maximum() ? "all_reduce_max" : "all_reduce", std::span(&id, 1),
                std::span(&axis, 1), AxisPlacement::replicated());
}

Id AxisExchanges::counted_once(Id id) {
  const Id operands[] = {id, add_first_of_axis(program_, axis_.name())};
  return insert(id, "gate", operands, {}, AxisPlacement::partial());
}

// Does the same for exchanges along a dimension; blocks have one dimension more, in front.
Id AxisExchanges::along(Id id, const char* kind, const Name& dim, const AxisPlacement& result) {
  const std::string_view from = kind;
  const bool blocks = from == "unblock" || from.starts_with("reduce_scatter");
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

}  // namespace prun
