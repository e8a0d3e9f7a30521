// Declares add, scale, cast, accumulate, reciprocal, multiply and choose. An output may be one of the inputs.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

template <class T>
void add(const T* a, const T* b, T* y, std::int64_t n, Stream stream);

// Sets y = factor * x, the factor rounded to the type that values are computed in.
template <class T>
void scale(const T* x, T* y, double factor, std::int64_t n, Stream stream);

template <class From, class To>
void cast(const From* x, To* y, std::int64_t n, Stream stream);

// Adds x to sum.
template <class T, class S>
void accumulate(const T* x, S* sum, std::int64_t n, Stream stream);

// These take one number each.
void reciprocal(const double* x, double* y, Stream stream);
void multiply(const double* a, const double* b, double* y, Stream stream);
// Sets *y = *a where *which is not 0, else *b.
void choose(const double* which, const double* a, const double* b, double* y, Stream stream);

}  // namespace prun::cuda
