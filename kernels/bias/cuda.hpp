// Declares bias_grad, the sum of dy over its rows, and add_bias, for products that cannot add a bias.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Sets dbias to the sum of dy [rows, width] over the rows, or adds it.
template <class T, class S>
void bias_grad(const T* dy, Sum<S> dbias, std::int64_t rows, std::int64_t width, void* workspace,
               Stream stream);
// Does the same for rows that begin `stride` elements after each other.
template <class T, class S>
void strided_bias_grad(const T* dy, std::int64_t stride, Sum<S> dbias, std::int64_t rows, std::int64_t width,
                       void* workspace, Stream stream);
template <class T>
std::int64_t bias_grad_workspace(std::int64_t rows, std::int64_t width);

// Computes y [rows, width] = x [rows, width] + bias [width]; x may be null, which means 0, or y. Rows of both
// begin `stride` elements after each other.
template <class T>
void add_bias(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width, std::int64_t stride,
              Stream stream);

}  // namespace prun::cuda
