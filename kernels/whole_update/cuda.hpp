// Declares the parts of updates of whole tensors, but for products of matrices: scaling by a norm and by a
// factor on the device, sums over rows and columns, and what adafactor makes of them.
#pragma once

#include <cstdint>

#include "cuda/launch.hpp"

namespace prun::cuda {

// Describes matrices of n elements each, `stride` elements from one to the next.
struct MatrixRun {
  std::int64_t n, count, stride;
};

// Divides each matrix by its norm, y = x / max(|x|, least); the results lie one behind the other.
template <class C, class T>
void divide_by_norms(const MatrixRun& run, const C* x, double least, T* y, double* workspace, Stream stream);
// Returns the bytes of workspace, whatever the size of the matrices.
std::int64_t norms_workspace(std::int64_t count);

// Computes y = a x + b z, rounded once. y may be x.
template <class T, class C>
void mix(double a, const T* x, double b, const C* z, T* y, std::int64_t n, Stream stream);

// Multiplies each matrix, y = factor x, where the matrices of x lie one behind the other.
template <class T, class C>
void scale_out(const MatrixRun& run, double factor, const T* x, C* y, Stream stream);

// Sets y = *factor x, the factor rounded to the type of x.
template <class T>
void scale_by(const T* x, const double* factor, T* y, std::int64_t n, Stream stream);

// Describes `batch` matrices, dense and row by row.
struct FactoredShape {
  std::int64_t batch, rows, columns;
};

// Sums (*clip * gradient)^2 over columns, over rows, and over both.
template <class T, class C>
void factored_squares(const FactoredShape& shape, const T* gradient, const double* clip, C* rows, C* columns,
                      C* total, Stream stream);

// Adds (*step)^decay (sum / count - mean) to mean, unless *keep is 0.
template <class C>
void mean_update(C* mean, const C* sum, const double* step, const double* keep, double decay, double count,
                 std::int64_t n, Stream stream);

// Sets direction = *clip * gradient / sqrt(max(eps^2, rows * columns / total)).
template <class T, class C>
void factored_direction(const FactoredShape& shape, const T* gradient, const double* clip, const C* rows,
                        const C* columns, const C* total, double eps, C* direction, Stream stream);

struct AdafactorNumbers {
  const double *squares, *weights, *lr, *step;
  double* factor;
};
void adafactor_factor(const AdafactorNumbers& numbers, double count, double least, double limit,
                      double lr_scale, Stream stream);

}  // namespace prun::cuda
