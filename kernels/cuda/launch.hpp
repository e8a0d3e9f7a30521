// Holds what every launch function of kernels/cuda shares. They mirror kernels/cpu: the same names, values
// and types of statistics and accumulators. Pointers are to device memory, rows are dense; a launch function
// only enqueues, never waits, and throws where the launch is refused. Where pointers are not aligned to 16
// bytes or a width is no multiple of a 16-byte chunk, a slower kernel gives the same values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "prun/types.hpp"

struct CUstream_st;

namespace prun::cuda {

using Stream = CUstream_st*;

// Is double for double, otherwise float: values are computed in it, and statistics have this type and, unless
// a second template argument S names another, accumulators. S may be bf16 for values in bf16.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Is what a kernel adds a sum to, rounded once with it, or begins: then the old values are not read.
template <class C>
struct Sum {
  C* data;
  bool begins;

  Sum(C* to = nullptr, bool first = false) : data(to), begins(first) {}
};

}  // namespace prun::cuda
