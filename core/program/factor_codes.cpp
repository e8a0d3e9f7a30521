#include "program/factor_codes.hpp"

#include <algorithm>

namespace prun {
namespace {

// Returns the attributes of an op that reads codes.
std::vector<AttrValue> attrs_with_codes(const Program& program, Id op) {
  std::vector<AttrValue> attrs;
  for (std::uint64_t i = 0; i < program.op(op).def->attr_count; ++i) {
    const char* const name = program.op(op).def->attrs[i].name;
    attrs.push_back({name, std::string_view(name) == "fp8" ? 2.0 : program.attr(op, name)});
  }
  return attrs;
}

}  // namespace

OperandShape shape_of_value(const Value& value) {
  OperandShape shape;
  shape.present = true;
  shape.dtype = value.dtype;
  shape.rank = static_cast<std::int32_t>(value.dims.size());
  std::copy(value.dims.begin(), value.dims.end(), shape.dims);
  return shape;
}

bool takes_codes(const Program& program, Id id, std::size_t operand, const OperandShape& codes) {
  const Op& op = program.op(id);
  if (!codes.present || !op.def->in_blocks || !op.has_attr("in_dims") || program.attr(id, "fp8") != 1)
    return false;
  for (const std::string_view some : {"fp8_from", "fp8_until"})
    if (op.has_attr(some) && program.attr(id, some) != 0) return false;
  if (operand >= op.operands.size() || op.access(operand) != Access::read ||
      std::count(op.operands.begin(), op.operands.end(), op.operands[operand]) != 1)
    return false;
  OpShape shape = program.shape(op);
  std::vector<Attr> attrs = op.attrs;
  for (std::size_t i = 0; i < attrs.size(); ++i)
    if (std::string_view(op.def->attrs[i].name) == "fp8") attrs[i].i = 2;
  shape.attrs = attrs.data();
  shape.operand[operand] = codes;
  return op.def->rule(&shape).ok();
}

OperandShape local_shape_of(const Program& program, Id value) {
  OperandShape part = shape_of_value(program.value(value));
  const std::vector<Dim> local = program.local_dims(value);
  std::copy(local.begin(), local.end(), part.dims);
  return part;
}

bool are_cut_alike(const Program& program, Id factor, const OperandShape& codes, int in_dims, bool by_rows) {
  const OperandShape of_part = fp8_squares_of(local_shape_of(program, factor), in_dims, by_rows);
  const std::vector<AxisPlacement>& placement = program.value(factor).placement;
  for (int d = 0; d < codes.rank; ++d) {
    std::int64_t extent = codes.dims[d].extent;
    for (const AxisPlacement& at : placement)
      if (at.is_sharded() && at.dim == codes.dims[d].name)
        extent /= program.mesh().extent(static_cast<AxisId>(&at - placement.data()));
    if (of_part.rank != codes.rank || of_part.dims[d].extent != extent) return false;
  }
  return true;
}

bool lies_as(const Value& value, const OperandShape& codes) {
  return std::all_of(value.placement.begin(), value.placement.end(), [&](const AxisPlacement& at) {
    if (at.is_incomplete()) return false;
    return !at.is_sharded() || std::any_of(codes.dims, codes.dims + codes.rank,
                                           [&](const Dim& dim) { return dim.name == at.dim; });
  });
}

Id add_codes(Program& program, Id of, const OperandShape& shape, Role role, const char* suffix) {
  const Value& value = program.value(of);
  Value codes;
  codes.name = value.name + suffix;
  codes.role = role;
  codes.dtype = shape.dtype;
  codes.dims.assign(shape.dims, shape.dims + shape.rank);
  codes.segment = value.segment;
  codes.placement = value.placement;
  return program.add_value(std::move(codes));
}

void read_codes(Program& program, Id id, std::size_t operand, Id codes) {
  const Op op = program.op(id);
  std::vector<Id> operands = op.operands;
  operands[operand] = codes;
  const std::vector<AttrValue> attrs = attrs_with_codes(program, id);
  program.replace_op(id, op.kind(), std::move(operands), attrs);
}

}  // namespace prun
