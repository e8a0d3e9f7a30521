// Declares keep_summand, momentum_summand and frozen_direction: the parts of an update that ranks sum.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Moves rows up by one, and makes x the last: each has `bytes` bytes, a multiple of 4.
void keep_summand(const void* x, void* summands, std::int64_t bytes, std::int64_t rows, Stream stream);

// Takes each row of gradient, as long as m.
template <class T>
struct MomentumSummand {
  const T* gradient;
  const Compute<T>* m;
  const double* clip;
  Compute<T>* summand;
  std::int64_t elements, row;
  double beta;
  std::int64_t summands;
};
template <class T>
void momentum_summand(const MomentumSummand<T>& of, Stream stream);

template <class C>
struct FrozenDirection {
  const C* sum;
  C* m;
  const C* v;
  const double* keep;
  C* direction;
  std::int64_t elements;
  double eps, beta;
  std::int64_t frozen_at;
};
template <class C>
void frozen_direction(const FrozenDirection<C>& of, Stream stream);

}  // namespace prun::cuda
