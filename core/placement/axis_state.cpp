#include "placement/axis_state.hpp"

#include <algorithm>

namespace prun {

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

}  // namespace prun
