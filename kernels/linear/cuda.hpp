// Computes linear and its two gradients as products, on operands flattened to matrices:
//
//   linear              y [rows, out] = x [rows, in] * weight [out, in]^T (+ bias [out]) (+ residual)
//   linear_input_grad   dx [rows, in] = dy [rows, out] * weight
//   linear_weight_grad  dweight [out, in] += dy^T * x, or = where it is the first to write there
//
// Each is prepared once for its shape and run with its operands (cuda/gemm.hpp). T is one of the value types;
// a weight's gradient is summed in Compute<T> and, where it lies in bf16 alone, rounded with what lies there.
#pragma once

#include "cuda/gemm.hpp"

namespace prun::cuda {

struct LinearShape {
  std::int64_t rows, in, out;
  bool bias = false;             // that of linear
  std::int32_t alignment = 256;  // that of all operands, in bytes
};

template <class T>
Product linear_product(const LinearShape& s) {
  return {.m = s.rows,
          .n = s.out,
          .k = s.in,
          .transpose_b = true,
          .input = dtype_of<T>(),
          .output = dtype_of<T>(),
          .epilogue = s.bias ? Epilogue::bias : Epilogue::none,
          .alignment = s.alignment};
}

template <class T>
Product linear_input_grad_product(const LinearShape& s) {
  return {.m = s.rows,
          .n = s.in,
          .k = s.out,
          .input = dtype_of<T>(),
          .output = dtype_of<T>(),
          .alignment = s.alignment};
}

template <class T, class S = Compute<T>>
Product linear_weight_grad_product(const LinearShape& s) {
  return {.m = s.out,
          .n = s.in,
          .k = s.rows,
          .transpose_a = true,
          .input = dtype_of<T>(),
          .output = dtype_of<S>(),
          .alignment = s.alignment};
}

// `residual` may be null, or y itself.
template <class T>
GemmOperands linear_operands(const T* x, const T* weight, const T* bias, const T* residual, T* y,
                             void* workspace) {
  return {x, weight, residual, bias, y, workspace};
}

template <class T>
GemmOperands linear_input_grad_operands(const T* dy, const T* weight, T* dx, void* workspace) {
  return {dy, weight, nullptr, nullptr, dx, workspace};
}

// `first` says that dweight holds nothing yet and is not read.
template <class T, class S>
GemmOperands linear_weight_grad_operands(const T* x, const T* dy, S* dweight, bool first, void* workspace) {
  return {dy, x, first ? nullptr : dweight, nullptr, dweight, workspace};
}

}  // namespace prun::cuda
