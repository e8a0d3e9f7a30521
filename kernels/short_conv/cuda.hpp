// Declares the short convolution and its gradients.
#pragma once

#include "cuda/launch.hpp"
#include "prun/kernel.hpp"
#include "sequence_runs.hpp"

namespace prun::cuda {

// Describes x [batch, seq, channels] and a weight [rows, taps], of which a channel has one row: channels may
// be several dimensions, and x may have a part of each. In runs of positions, x has those in front of each.
struct ShortConvSizes {
  std::int64_t batch, seq, channels, taps, rows;
  std::int64_t own[max_dims] = {}, all[max_dims] = {}, from[max_dims] = {};  // extents here, of rows, begins
  int dims = 0;
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first position each one sees; null: 0

  SequenceRuns runs = {};

  static ShortConvSizes of(const Tensor& x, const Tensor& weight, const Tensor* documents);
  // `own` has no more than the runs, of `rows` positions each.
  static ShortConvSizes of_runs(const Tensor& x, const Tensor& weight, const Tensor* documents,
                                const Tensor& own, std::int64_t rows, std::int64_t chunks);

  constexpr std::int64_t run() const { return runs.rows + runs.ahead; }  // rows of x that a run has
  constexpr std::int64_t all_rows() const { return seq / runs.rows * run(); }
};

// `tail` has `kept` positions; null: it is not wanted.
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
