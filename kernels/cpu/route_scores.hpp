// Computes scores of experts from their logits; route, its gradient and balance share them.
#pragma once

#include <cstdint>

#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {

// Returns the largest of a row; NaN is passed over, and shows in the sum of exponentials.
template <class C>
C largest(const C* row, std::int64_t n) {
  C most = row[0];
  for (std::int64_t e = 1; e < n; ++e) most = row[e] > most ? row[e] : most;
  return most;
}

// Computes the softmax of a row; returns the logarithm of its sum of exponentials.
template <class C>
C softmax_scores(const C* logits, std::int64_t n, C* scores) {
  const C most = largest(logits, n);
  C sum = 0;
  for (std::int64_t e = 0; e < n; ++e) sum += scores[e] = exp_of(logits[e] - most);
  for (std::int64_t e = 0; e < n; ++e) scores[e] /= sum;
  return most + std::log(sum);
}

template <class C>
void sigmoid_scores(const C* logits, std::int64_t n, C* scores) {
  for (std::int64_t e = 0; e < n; ++e) scores[e] = sigmoid(logits[e]).value;
}

// Keeps a quotient finite where all chosen scores are 0; it changes no bit of others.
template <class C>
inline constexpr C least_sum = C(1e-20);

}  // namespace prun::cpu::PRUN_ISA
