// Turns rows of scores into softmax weights, with the pieces that attention and lm_head share.
//
// A row starts at a vector-aligned address and has room up to a multiple of row_unit<T>. That padding is
// overwritten, so that every loop runs over whole vectors and the order of each sum is a function of the
// row's length alone.
#pragma once

#include <cstdint>
#include <limits>

#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {

template <class T>
inline constexpr std::int64_t row_unit = vector_lanes<T>;

template <class T>
std::int64_t padded(std::int64_t n) {
  return (n + row_unit<T> - 1) / row_unit<T> * row_unit<T>;
}

template <class T>
void pad_row(T* row, std::int64_t n) {
  for (std::int64_t j = n; j < padded<T>(n); ++j) row[j] = -std::numeric_limits<T>::infinity();
}

// Combines halves with halves, until one lane is left.
template <class T, class Combine>
T fold_lanes(Vector<T> lanes, Combine combine) {
  alignas(vector_bytes) T part[vector_lanes<T>];
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(part) = lanes;
#pragma GCC unroll 4
  for (int width = vector_lanes<T> / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] = combine(part[i], part[i + width]);
  return part[0];
}

// Returns the largest of a row and `start`. NaN is passed over: it shows in the sum of exponentials.
template <class T>
T row_max(T* row, std::int64_t n, T start = -std::numeric_limits<T>::infinity()) {
  pad_row(row, n);
  const auto* vectors = reinterpret_cast<const typename VectorOf<T>::Unaligned*>(row);
  Vector<T> largest = Vector<T>{} + start;
  for (std::int64_t v = 0; v < padded<T>(n) / vector_lanes<T>; ++v)
    largest = vectors[v] > largest ? Vector<T>(vectors[v]) : largest;
  return fold_lanes<T>(largest, [](T a, T b) { return b > a ? b : a; });
}

// Sets row = exp(row - shift); the padding becomes 0 (or NaN in a row whose shift is not finite).
template <class T>
void exp_row(T* row, std::int64_t n, T shift) {
  pad_row(row, n);
  const std::int64_t size = padded<T>(n);
#pragma omp simd aligned(row : vector_bytes)
  for (std::int64_t j = 0; j < size; ++j) row[j] = exp_of(row[j] - shift);
}

// Sets row = cap * tanh(row / cap), and `slopes`, unless it is null, to this function's slopes there.
template <class T>
void cap_row(T* row, std::int64_t n, T cap, T* slopes = nullptr) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) row[j] = tanh_of(row[j] / cap);
  if (slopes) {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) slopes[j] = (T(1) - row[j]) * (T(1) + row[j]);
  }
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) row[j] *= cap;
}

template <class T>
void multiply_row(T* row, std::int64_t n, const T* by) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) row[j] *= by[j];
}

// Returns the sum of a row's whole vectors, the padding included: short stretches are summed in T, and their
// sums in double.
template <class T>
double row_sum(const T* row, std::int64_t n) {
  constexpr std::int64_t stretch = 64;
  const auto* vectors = reinterpret_cast<const typename VectorOf<T>::Unaligned*>(row);
  const std::int64_t count = padded<T>(n) / vector_lanes<T>;
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += stretch) {
    const std::int64_t end = begin + stretch < count ? begin + stretch : count;
    Vector<T> lanes = {};
    for (std::int64_t v = begin; v < end; ++v) lanes += vectors[v];
    sum += static_cast<double>(fold_lanes<T>(lanes, [](T a, T b) { return a + b; }));
  }
  return sum;
}

}  // namespace prun::cpu::PRUN_ISA
