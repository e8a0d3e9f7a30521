// Reads the scalars that updates, and what decides about them, have as operands.
#pragma once

#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

inline double scalar(const Tensor& x) { return *x.as<const double>(); }

inline bool all_double(const OpShape& s, int from, int to) {
  for (int i = from; i < to; ++i)
    if (!s.operand[i].present || s.operand[i].dtype != DType::f64) return false;
  return true;
}

}  // namespace prun::cpu::PRUN_ISA
