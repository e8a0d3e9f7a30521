// Chooses the instance of a kernel template that fits the types of an op's operands. A choice is a generic
// lambda: []<class T>() -> Kernel { return gelu<T>; }
#pragma once

#include <initializer_list>

#include "cpu/values.hpp"
#include "prun/named_operands.hpp"

namespace prun::cpu::PRUN_ISA {

// Says whether all listed operands that are present have one type; the first listed must be present.
inline bool same_type(const OpShape& shape, std::initializer_list<int> operands) {
  const DType type = shape.operand[*operands.begin()].dtype;
  for (int i : operands)
    if (shape.operand[i].present && shape.operand[i].dtype != type) return false;
  return true;
}

template <class Op>
bool same_type(const ShapeOf<Op>& shape, OperandsOf<Op> operands) {
  const OpShape& s = shape;
  const DType type = s.operand[operands.begin()->index].dtype;
  for (const OperandOf<Op> i : operands)
    if (s.operand[i.index].present && s.operand[i.index].dtype != type) return false;
  return true;
}

// Chooses for values and parameters: double, float, bf16 or f16; it returns null for any other type.
template <class Choice>
Kernel choose_value(DType type, Choice choice) {
  switch (type) {
    case DType::f64: return choice.template operator()<double>();
    case DType::f32: return choice.template operator()<float>();
    case DType::bf16: return choice.template operator()<bf16>();
    case DType::f16: return choice.template operator()<f16>();
    default: return nullptr;
  }
}

// Chooses for statistics of values: double or float; it returns null for any other type.
template <class Choice>
Kernel choose_state(DType type, Choice choice) {
  switch (type) {
    case DType::f64: return choice.template operator()<double>();
    case DType::f32: return choice.template operator()<float>();
    default: return nullptr;
  }
}

// Chooses for values of type T added into an accumulator of type Sum, which is never the narrower of the two,
// nor the other 16-bit type.
template <class Choice>
Kernel choose_accumulation(DType value, DType sum, Choice choice) {
  return choose_value(value, [=]<class T>() -> Kernel {
    return choose_value(sum, [=]<class Sum>() -> Kernel {
      if constexpr (sizeof(T) > sizeof(Sum) || (is_half<Sum> && !std::is_same_v<T, Sum>))
        return nullptr;
      else
        return choice.template operator()<T, Sum>();
    });
  });
}

// Chooses for products of values of type T summed in type Sum: that of statistics, or bf16 as well.
template <class Choice>
Kernel choose_product_sum(DType value, DType sum, Choice choice) {
  return choose_value(value, [=]<class T>() -> Kernel {
    if (sum == OpShape::statistics(value)) return choice.template operator()<T, Compute<T>>();
    if constexpr (std::is_same_v<T, bf16>)
      if (sum == DType::bf16) return choice.template operator()<T, bf16>();
    return nullptr;
  });
}

}  // namespace prun::cpu::PRUN_ISA
