#include "cuda/rank_sum.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

constexpr int threads = 512;
// A thread has so many packs of each rank under way: few blocks must fill the memory's bandwidth.
constexpr int packs = 4;

struct AddRanks {
  template <class C>
  __device__ C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(static_cast<std::make_unsigned_t<C>>(a) +
                            static_cast<std::make_unsigned_t<C>>(b));
    else
      return a + b;
  }
};

struct LargerRank {
  template <class C>
  __device__ C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>)
      return a > b ? a : b;
    else
      return a > b || a != a ? a : b;
  }
};

// Holds N values to compute with, whole numbers as they are.
template <class T, int N>
struct RankPack {
  using C = std::conditional_t<std::is_integral_v<T>, T, Compute<T>>;
  C of[N];

  __device__ void load(const T* from) {
    if constexpr (std::is_integral_v<T>) {
#pragma unroll
      for (int i = 0; i < N; ++i) of[i] = from[i];
    } else {
      const Lanes<C, N> lanes = load_lanes<N>(from);
#pragma unroll
      for (int i = 0; i < N; ++i) of[i] = lanes[i];
    }
  }
  __device__ void store(T* to) const {
    if constexpr (std::is_integral_v<T>) {
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = of[i];
    } else {
      Lanes<C, N> lanes;
#pragma unroll
      for (int i = 0; i < N; ++i) lanes[i] = of[i];
      store_lanes(to, lanes);
    }
  }
};

// Folds packs of N elements; `count` is that of packs. A pack of all ranks is read before it is written.
template <class T, int N, class Fold>
__global__ __launch_bounds__(threads) void rank_fold_kernel(RankParts parts, T* to, std::int64_t count,
                                                            Fold fold) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; first < count;
       first += packs * stride) {
    RankPack<T, N> sum[packs];
    for (int rank = 0; rank < parts.ranks; ++rank) {
      const T* const part = static_cast<const T*>(parts.part[rank]);
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        const std::int64_t at = first + k * stride;
        if (at >= count) continue;
        RankPack<T, N> one;
        one.load(part + at * N);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[k].of[i] = rank == 0 ? one.of[i] : fold(sum[k].of[i], one.of[i]);
      }
    }
#pragma unroll
    for (int k = 0; k < packs; ++k)
      if (first + k * stride < count) sum[k].store(to + (first + k * stride) * N);
  }
}

template <class T, int N, class Fold>
void launch_fold(const RankParts& parts, T* to, std::int64_t count, int blocks, Fold fold, Stream stream) {
  if (count == 0) return;
  const unsigned grid = grid_of(std::min<std::int64_t>(ceil_div(count, threads), blocks));
  rank_fold_kernel<T, N, Fold><<<grid, threads, 0, stream>>>(parts, to, count, fold);
  check_launch("rank_sum");
}

// Takes wide packs as far as they go, and the rest one by one.
template <class T, class Fold>
void fold_ranks(RankParts parts, T* to, std::int64_t elements, int blocks, Fold fold, Stream stream) {
  PRUN_CHECK(parts.ranks > 0 && parts.ranks <= most_ranks_summed, parts.ranks, " ranks");
  constexpr int wide = std::is_integral_v<T> ? 1 : chunk<T>;
  bool is_aligned = aligned({to});
  for (int rank = 0; rank < parts.ranks; ++rank) is_aligned &= aligned({parts.part[rank]});
  std::int64_t done = 0;
  if (wide > 1 && is_aligned) {
    launch_fold<T, wide>(parts, to, elements / wide, blocks, fold, stream);
    done = elements / wide * wide;
  }
  for (int rank = 0; rank < parts.ranks; ++rank)
    parts.part[rank] = static_cast<const T*>(parts.part[rank]) + done;
  launch_fold<T, 1>(parts, to + done, elements - done, blocks, fold, stream);
}

template <class T, class Fold>
void load_fold() {
  constexpr int wide = std::is_integral_v<T> ? 1 : chunk<T>;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, rank_fold_kernel<T, wide, Fold>), "loading a kernel");
  check(cudaFuncGetAttributes(&attributes, rank_fold_kernel<T, 1, Fold>), "loading a kernel");
}

}  // namespace

template <class T>
void load_rank_sums() {
  load_fold<T, AddRanks>();
  load_fold<T, LargerRank>();
}

template <class T>
void sum_ranks(const RankParts& parts, T* to, std::int64_t elements, int blocks, Stream stream) {
  fold_ranks(parts, to, elements, blocks, AddRanks(), stream);
}

template <class T>
void largest_of_ranks(const RankParts& parts, T* to, std::int64_t elements, int blocks, Stream stream) {
  fold_ranks(parts, to, elements, blocks, LargerRank(), stream);
}

#define PRUN_RANK_SUM_OF(T)                                                    \
  template void load_rank_sums<T>();                                           \
  template void sum_ranks<T>(const RankParts&, T*, std::int64_t, int, Stream); \
  template void largest_of_ranks<T>(const RankParts&, T*, std::int64_t, int, Stream);
PRUN_RANK_SUM_OF(double)
PRUN_RANK_SUM_OF(float)
PRUN_RANK_SUM_OF(bf16)
PRUN_RANK_SUM_OF(f16)
PRUN_RANK_SUM_OF(std::int32_t)
PRUN_RANK_SUM_OF(std::int64_t)
#undef PRUN_RANK_SUM_OF

}  // namespace prun::cuda
