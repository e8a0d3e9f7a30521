// bias_grad: the gradient of a bias is the sum of dy over its rows. add_bias: for products that cannot.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// dbias gets the sum of dy [rows, width] over the rows.
template <class T, class S>
void bias_grad(const T* dy, Sum<S> dbias, std::int64_t rows, std::int64_t width, void* workspace,
               Stream stream);
// The same of rows that begin `stride` elements after each other.
template <class T, class S>
void strided_bias_grad(const T* dy, std::int64_t stride, Sum<S> dbias, std::int64_t rows, std::int64_t width,
                       void* workspace, Stream stream);
template <class T>
std::int64_t bias_grad_workspace(std::int64_t rows, std::int64_t width);

// y [rows, width] = x [rows, width] + bias [width]; x may be null, which means 0, or y. Rows of both begin
// `stride` elements after each other.
template <class T>
void add_bias(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width, std::int64_t stride,
              Stream stream);

}  // namespace prun::cuda
