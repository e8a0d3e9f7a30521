// Declares sigmoid_gate and the gradient of its gate, one number a row.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

template <class T>
void sigmoid_gate(const T* x, const T* gate, T* y, std::int64_t rows, std::int64_t width, Stream stream);

template <class T>
void sigmoid_gate_grad(const T* dy, const T* x, const T* gate, T* dgate, std::int64_t rows,
                       std::int64_t width, Stream stream);

}  // namespace prun::cuda
