#include "program/fp8_factors.hpp"

#include <algorithm>

namespace prun {
namespace {

bool is_summed(const OpShape& shape, const Dim& dim) {
  return std::find(std::begin(shape.sums), std::end(shape.sums), dim.name) != std::end(shape.sums);
}

// Returns the parameter that the op multiplies, or computes the gradient of.
Id weight_of(const Program& program, const Op& op) {
  for (const Id operand : op.operands)
    if (operand != none && program.value(operand).role == Role::parameter) return operand;
  for (const Id parameter : program.parameters())
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == Access::update &&
          program.value(parameter).gradient == op.operands[i])
        return parameter;
  return none;
}

}  // namespace

std::vector<Fp8Factor> fp8_factors_of(const Program& program, const Op& op) {
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  std::vector<Fp8Factor> factors;
  const Id weight = weight_of(program, op);
  std::size_t square = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none || op.access(i) != Access::read) continue;
    const std::vector<Dim>& dims = program.value(op.operands[i]).dims;
    const auto summed =
        std::count_if(dims.begin(), dims.end(), [&](const Dim& d) { return is_summed(shape, d); });
    if (summed == 0) continue;
    const bool last = is_summed(shape, dims.back());
    const Value& value = program.value(op.operands[i]);
    if (value.role == Role::parameter || value.dtype == DType::u8) square = factors.size();
    factors.push_back({op.operands[i], last ? Fp8Blocks::rows : Fp8Blocks::columns,
                       last ? summed : static_cast<std::int64_t>(dims.size()) - summed, weight});
  }
  if (!factors.empty()) factors[square].blocks = Fp8Blocks::squares;
  return factors;
}

}  // namespace prun
