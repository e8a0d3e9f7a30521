// Declares gelu in its tanh form, alone and with the bias added before, and in its erf form, swiglu, geglu in
// both, and their gradients.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

template <class T>
void gelu(const T* x, T* y, std::int64_t n, Stream stream);
template <class T>
void gelu_grad(const T* dy, const T* x, T* dx, std::int64_t n, Stream stream);

template <class T>
void gelu_erf(const T* x, T* y, std::int64_t n, Stream stream);
template <class T>
void gelu_erf_grad(const T* dy, const T* x, T* dx, std::int64_t n, Stream stream);

// Computes y = gelu(x + bias) over rows; x + bias is rounded, as if it had been written.
template <class T>
void bias_gelu(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width, Stream stream);

// Computes its dx, and dbias += the sum of dx over the rows. dx may be dy.
template <class T>
void bias_gelu_grad(const T* dy, const T* x, const T* bias, T* dx, Compute<T>* dbias, std::int64_t rows,
                    std::int64_t width, void* workspace, Stream stream);
template <class T>
std::int64_t bias_gelu_grad_workspace(std::int64_t rows, std::int64_t width);

// Computes y = gate * sigmoid(gate) * up, where x [rows, 2, width] holds gate and up.
template <class T>
void swiglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream);
// dx may be x.
template <class T>
void swiglu_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream);

// Does the same with y = gelu(gate) * up.
template <class T>
void geglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream);
template <class T>
void geglu_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream);

// Does the same with gelu in its erf form.
template <class T>
void geglu_erf(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream);
template <class T>
void geglu_erf_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream);

}  // namespace prun::cuda
