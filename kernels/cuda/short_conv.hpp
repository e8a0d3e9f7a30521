// Declares the short convolution and its gradients.
#pragma once

#include "cuda/launch.hpp"
#include "prun/kernel.hpp"

namespace prun::cuda {

// Describes x [batch, seq, channels] and a weight [rows, taps], of which a channel has one row: channels may
// be several dimensions, and x may have a part of each.
struct ShortConvSizes {
  std::int64_t batch, seq, channels, taps, rows;
  std::int64_t own[max_dims] = {}, all[max_dims] = {}, from[max_dims] = {};  // extents here, of rows, begins
  int dims = 0;
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first position each one sees; null: 0

  static ShortConvSizes of(const Tensor& x, const Tensor& weight, const Tensor* documents);
};

// `tail` has `kept` positions.
template <class T>
void short_conv(const ShortConvSizes& sizes, const T* x, const T* weight, T* y, T* tail, std::int64_t kept,
                Stream stream);
template <class T>
void short_conv_at(const ShortConvSizes& sizes, const T* x, const T* weight, const double* position,
                   T* kept_tail, T* y, T* tail, std::int64_t kept, Stream stream);
template <class T>
void short_conv_input_grad(const ShortConvSizes& sizes, const T* dy, const T* x, const T* weight, T* dx,
                           Stream stream);
template <class T, class S>
void short_conv_weight_grad(const ShortConvSizes& sizes, const T* dy, const T* x, const T* weight,
                            Sum<S> dweight, Stream stream);

}  // namespace prun::cuda
