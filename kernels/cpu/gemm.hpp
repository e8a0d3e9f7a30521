// The CPU matrix multiply computes c = alpha * a * b (+ c) (+ bias).
//
// Arithmetic is in double when a is double, else in float, and each element of c is rounded to its type
// once. Its bits depend on k, on the operands and on the instruction set alone: not on m, n, the thread
// count or how the caller cuts c into calls.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isa.hpp"
#include "prun/types.hpp"
#include "prun/workers.hpp"

namespace prun::cpu::PRUN_ISA {

// Views a matrix. One of the two strides is 1; the other is at least the extent it steps over.
template <class T>
struct Matrix {
  T* data;
  std::int64_t rows, cols, row_stride, col_stride;

  Matrix transposed() const { return {data, cols, rows, col_stride, row_stride}; }
  operator Matrix<const T>() const requires(!std::is_const_v<T>) {
    return {data, rows, cols, row_stride, col_stride};
  }
};

// Views rows that are one after the other, or `stride` elements apart.
template <class T>
Matrix<T> row_major(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return {data, rows, cols, stride, 1};
}
template <class T>
Matrix<T> row_major(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, 1};
}

// Returns the bytes of workspace that a call with these extents needs; compute_size is that of the
// arithmetic, 8 for double and else 4. They are a few MiB for packed blocks and sums and half a MiB a thread,
// however large the matrices. The result never shrinks as an argument grows, so the largest of several calls
// can size it for all.
std::int64_t gemm_workspace(std::int32_t threads, std::int64_t m, std::int64_t n, std::int64_t k,
                            std::int64_t compute_size);

// Computes c = a * b, plus c if `accumulate`, plus bias[j] to column j if `bias` is not null. c has
// col_stride 1 and overlaps neither a nor b. `workspace` may have any alignment. It neither allocates nor
// locks. A, B and C are all double, or any mix of float and one of the 16-bit types.
template <class A, class B, class C>
void gemm(const Workers& workers, Matrix<const A> a, Matrix<const B> b, Matrix<C> c, bool accumulate,
          const A* bias, void* workspace);

// Computes c = alpha * a * b (+ c) on the calling thread, for use inside a parallel kernel. With alpha 1 the
// bits are those of gemm. The workspace is that of one thread.
template <class A, class B, class C>
void gemm_serial(double alpha, Matrix<const A> a, Matrix<const B> b, Matrix<C> c, bool accumulate,
                 void* workspace);

}  // namespace prun::cpu::PRUN_ISA
