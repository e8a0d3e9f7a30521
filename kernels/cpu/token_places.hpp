// Serves ops that number the tokens of each sample in the order of their positions, where these may lie in
// another order: operands are tokens, the result, and `positions`, which may be left out.
#pragma once

#include "cpu/isa.hpp"
#include "prun/kernel.hpp"

namespace prun::cpu::PRUN_ISA {

// Returns the place of each position, behind which the next one's is looked up; null: places are positions.
inline const std::int32_t* places_of(const KernelArgs& args) {
  const std::int32_t* positions = args.operands[2].as<const std::int32_t>();
  if (!positions) return nullptr;
  auto* places = static_cast<std::int32_t*>(args.workspace);
  for (std::int64_t i = 0; i < args.operands[2].dim[0]; ++i)
    places[positions[i]] = static_cast<std::int32_t>(i);
  return places;
}

inline std::int64_t places_workspace(const OpShape& s, std::int32_t) {
  return s.operand[2].present ? s.operand[2].bytes() : 0;
}

inline bool numbers_tokens(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32;
}

}  // namespace prun::cpu::PRUN_ISA
