// Serves ops that number the tokens of each sample in the order of their positions, where these may lie in
// another order: it is in operand `positions`, which may be left out.
#pragma once

#include "cpu/isa.hpp"
#include "prun/named_operands.hpp"

namespace prun::cpu::PRUN_ISA {

// Returns the place of each position, behind which the next one's is looked up; null: places are positions.
inline const std::int32_t* places_of(const Tensor& order, void* workspace) {
  const std::int32_t* positions = order.as<const std::int32_t>();
  if (!positions) return nullptr;
  auto* places = static_cast<std::int32_t*>(workspace);
  for (std::int64_t i = 0; i < order.dim[0]; ++i) places[positions[i]] = static_cast<std::int32_t>(i);
  return places;
}

template <class Op>
std::int64_t places_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  return s.has("positions") ? s["positions"].bytes() : 0;
}

inline bool are_numbers(const OperandShape& tokens, const OperandShape& result) {
  return tokens.dtype == DType::i32 && result.dtype == DType::i32;
}

}  // namespace prun::cpu::PRUN_ISA
