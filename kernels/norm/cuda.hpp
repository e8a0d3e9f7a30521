// Declares layernorm and rmsnorm over rows, forward with the residual added before, backward with the
// gradient that bypasses the norm added and the weights' gradients in the same pass.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Computes y = norm(x + residual). Without a residual, `sum` is not used and y = norm(x).
template <class T>
struct NormForward {
  const T* x;
  const T* residual;  // may be null
  T* sum;             // is x + residual, rounded; it may be x or residual
  const T* gain;
  const T* bias;  // layernorm's only; may be null
  T* y;
  Compute<T>* mean;  // layernorm's only
  Compute<T>* rstd;
  std::int64_t rows;
  std::int64_t width;
  double eps;
  double offset = 0;  // rmsnorm's only: it multiplies by offset + gain
};

template <class T>
void layernorm(const NormForward<T>& norm, Stream stream);
template <class T>
void rmsnorm(const NormForward<T>& norm, Stream stream);

// Computes dx = the norm's input gradient + residual, beside the weights' gradients. A result that is null is
// left out.
template <class T, class S = Compute<T>>
struct NormBackward {
  const T* dy;
  const T* x;
  const T* gain;           // is not read where dx is null
  const Compute<T>* mean;  // layernorm's only
  const Compute<T>* rstd;
  const T* residual;  // may be null, or dx
  T* dx;
  Sum<S> dgain;
  Sum<S> dbias;  // layernorm's only
  std::int64_t rows;
  std::int64_t width;
  void* workspace;    // has norm_backward_workspace bytes, aligned to 16; unread without sums
  double offset = 0;  // that of forward
  // Sums the residual over the rows: that is the gradient of a bias which was added behind the norm.
  Sum<S> residual_sum = {};
};

template <class T>
std::int64_t norm_backward_workspace(std::int64_t rows, std::int64_t width);
template <class T, class S>
void layernorm_backward(const NormBackward<T, S>& norm, Stream stream);
template <class T, class S>
void rmsnorm_backward(const NormBackward<T, S>& norm, Stream stream);

}  // namespace prun::cuda
