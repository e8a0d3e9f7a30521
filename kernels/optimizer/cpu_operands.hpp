// Reads the scalars that updates, and what decides about them, have as operands.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::cpu::PRUN_ISA {

inline double scalar(const Tensor& x) { return *x.as<const double>(); }

template <class Op>
bool all_double(const ShapeOf<Op>& s, OperandsOf<Op> names) {
  for (const OperandOf<Op> name : names)
    if (!s.has(name) || s[name].dtype != DType::f64) return false;
  return true;
}

}  // namespace prun::cpu::PRUN_ISA
