// Declares what stands around the gated delta rule. Rows are dense: of a position and a key head.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Each row of x is a row of `first` elements of y and, behind them, one of `rest` of gate.
template <class T>
void split_mixed(const T* x, T* y, T* gate, std::int64_t rows, std::int64_t first, std::int64_t rest,
                 Stream stream);
template <class T>
void join_mixed(const T* y, const T* gate, T* x, std::int64_t rows, std::int64_t first, std::int64_t rest,
                Stream stream);

// Each row of x is a query and a key of `key` elements, and `rest` of values.
template <class T>
void delta_heads(const T* x, T* q, T* k, T* v, std::int64_t rows, std::int64_t key, std::int64_t rest,
                 double eps, Stream stream);
template <class T>
void delta_heads_grad(const T* dq, const T* dk, const T* dv, const T* x, T* dx, std::int64_t rows,
                      std::int64_t key, std::int64_t rest, double eps, Stream stream);

// Counts decays and shares: `count` in all, `in_row` of a position, `values` of a key head.
struct GateSizes {
  std::int64_t count, in_row, values;
};
template <class T>
void delta_gates(const GateSizes& sizes, const T* x, const T* rate, const T* bias, Compute<T>* g,
                 Compute<T>* beta, Stream stream);
template <class T>
void delta_gates_input_grad(const GateSizes& sizes, const Compute<T>* dg, const Compute<T>* dbeta, const T* x,
                            const T* rate, const T* bias, T* dx, Stream stream);
template <class T, class S>
void delta_gates_weight_grad(const GateSizes& sizes, const Compute<T>* dg, const T* x, const T* rate,
                             const T* bias, Sum<S> drate, Sum<S> dbias, Stream stream);

}  // namespace prun::cuda
