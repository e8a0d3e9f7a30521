// bias_grad: the gradient of a bias is the sum of dy over its rows.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// dbias += the sum of dy [rows, width] over the rows.
template <class T>
void bias_grad(const T* dy, Compute<T>* dbias, std::int64_t rows, std::int64_t width, void* workspace,
               Stream stream);
template <class T>
std::int64_t bias_grad_workspace(std::int64_t rows, std::int64_t width);

}  // namespace prun::cuda
