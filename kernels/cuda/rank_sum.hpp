// Declares the sum and the maximum of what several ranks hold, in the order of the ranks.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

inline constexpr int most_ranks_summed = 16;

// Holds one array for each rank, all of the same length.
struct RankParts {
  const void* part[most_ranks_summed];
  int ranks;
};

// Loads both kernels of a type: where the driver loads them at their first launch, it may wait for streams
// that wait for other ranks.
template <class T>
void load_rank_sums();

// Sets to = ((part 0 + part 1) + part 2) + ..., computed in Compute<T> and rounded once; whole numbers wrap.
// `to` may be one of the parts. It runs on so many blocks at most. T is double, float, bf16, f16, int32_t or
// int64_t.
template <class T>
void sum_ranks(const RankParts& parts, T* to, std::int64_t elements, int blocks, Stream stream);

// Sets to = the largest of the parts; NaN if one is NaN.
template <class T>
void largest_of_ranks(const RankParts& parts, T* to, std::int64_t elements, int blocks, Stream stream);

}  // namespace prun::cuda
