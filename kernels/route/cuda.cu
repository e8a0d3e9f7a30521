// A warp takes a position, whose scores lie in shared memory. Choices are found one after the other: each
// lane knows its own best score, and of equal scores the one with the lower number goes before.
#include "route/cuda.hpp"

#include "cuda/route_scores.cuh"

namespace prun::cuda {
namespace {

inline constexpr int warps = 4;
inline constexpr int most_shared = 48 << 10;

// Holds one position in shared memory: its scores, the numbers that rank them, and the groups' scores.
template <class C>
struct Ranks {
  C *scores, *ranked, *groups;
};

template <class C>
__device__ Ranks<C> ranks_of_warp(C* shared, const RouteShape& s) {
  const int each = static_cast<int>(2 * s.routes + s.groups);
  C* const begin = shared + static_cast<int>(threadIdx.x) / warp_size * each;
  return {begin, begin + s.routes, begin + 2 * s.routes};
}

template <class C>
struct Best {
  C value;
  int number;  // -1: none
};

template <class C>
__device__ __forceinline__ Best<C> better(const Best<C>& a, const Best<C>& b) {
  const bool second =
      b.number >= 0 && (a.number < 0 || b.value > a.value || (b.value == a.value && b.number < a.number));
  return second ? b : a;
}

// A number that is taken will become NaN, so a NaN that is there already becomes the least number.
template <class C>
__device__ __forceinline__ void make_ranks(C* values, int n, int lane) {
  for (int i = lane; i < n; i += warp_size)
    if (!(values[i] > -INFINITY)) values[i] = -INFINITY;
  __syncthreads();
}

// Returns the number of the largest that is not taken, for all lanes.
template <class C>
__device__ __forceinline__ int take_largest(C* values, int n, int lane) {
  Best<C> best{0, -1};
  for (int i = lane; i < n; i += warp_size)
    if (values[i] == values[i]) best = better(best, Best<C>{values[i], i});
#pragma unroll
  for (int distance = warp_size / 2; distance > 0; distance /= 2) {
    const Best<C> other{__shfl_xor_sync(0xffffffffu, best.value, distance),
                        __shfl_xor_sync(0xffffffffu, best.number, distance)};
    best = better(best, other);
  }
  __syncthreads();  // waits until all lanes have looked
  if (lane == best.number % warp_size) values[best.number] = NAN;
  __syncthreads();
  return best.number;
}

template <class C>
__device__ __forceinline__ C group_score(const C* ranked, int size, int best) {
  C first = ranked[0], second = 0;
  for (int i = 1; i < size; ++i) {
    const bool leads = ranked[i] > first;
    const C next = leads ? first : ranked[i];
    second = i == 1 || next > second ? next : second;
    first = leads ? ranked[i] : first;
  }
  return best == 1 ? first : first + second;
}

// Experts of groups that are not chosen count as taken.
template <class C>
__device__ __forceinline__ void choose_groups(const Ranks<C>& at, const RouteShape& s, int lane) {
  const int groups = static_cast<int>(s.groups), size = static_cast<int>(s.routes / s.groups);
  for (int g = lane; g < groups; g += warp_size)
    at.groups[g] = group_score(at.ranked + g * size, size, static_cast<int>(s.group_best));
  __syncthreads();
  make_ranks(at.groups, groups, lane);
  for (int i = 0; i < s.chosen_groups; ++i) take_largest(at.groups, groups, lane);
  for (int e = lane; e < s.routes; e += warp_size)
    if (at.groups[e / size] == at.groups[e / size]) at.ranked[e] = NAN;
  __syncthreads();
}

template <class C>
__device__ __forceinline__ void scores_of(const C* logits, C* scores, const RouteShape& s, int lane) {
  const int n = static_cast<int>(s.routes);
  if (s.sigmoid)
    sigmoid_scores(logits, n, scores, lane);
  else
    softmax_scores(logits, n, scores, lane);
}

template <class C>
__global__ __launch_bounds__(warps* warp_size) void route_kernel(const C* logits, const C* bias,
                                                                 std::int32_t* index, C* weight,
                                                                 RouteShape s) {
  extern __shared__ __align__(16) double route_shared[];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, n = static_cast<int>(s.routes);
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  // All warps come to each barrier: a warp behind the last position does that one again.
  const std::int64_t position = own < s.positions ? own : s.positions - 1;
  const Ranks<C> at = ranks_of_warp(reinterpret_cast<C*>(route_shared), s);
  scores_of(logits + position * s.routes, at.scores, s, lane);
  for (int e = lane; e < n; e += warp_size) at.ranked[e] = at.scores[e] + (bias ? bias[e] : C(0));
  __syncthreads();
  make_ranks(at.ranked, n, lane);
  if (s.groups > 1) choose_groups(at, s, lane);
  C sum = 0;
  for (int i = 0; i < s.choices; ++i) {
    const int chosen = take_largest(at.ranked, n, lane);
    sum += at.scores[chosen];
    if (lane == 0 && own < s.positions) index[position * s.choices + i] = chosen;
  }
  const C scale = static_cast<C>(s.scale), factor = s.normalise ? scale / (sum + least_sum<C>) : scale;
  __syncthreads();
  for (int i = lane; own < s.positions && i < s.choices; i += warp_size)
    weight[position * s.choices + i] = at.scores[index[position * s.choices + i]] * factor;
}

template <class C>
__global__ __launch_bounds__(warps* warp_size) void route_grad_kernel(const C* logits,
                                                                      const std::int32_t* index,
                                                                      const C* dweight, C* dlogits,
                                                                      RouteShape s) {
  extern __shared__ __align__(16) double route_grad_shared[];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, n = static_cast<int>(s.routes);
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  // All warps come to each barrier: a warp behind the last position does that one again.
  const std::int64_t position = own < s.positions ? own : s.positions - 1;
  const Ranks<C> at = ranks_of_warp(reinterpret_cast<C*>(route_grad_shared), s);
  scores_of(logits + position * s.routes, at.scores, s, lane);
  __syncthreads();
  const std::int32_t* const chosen = index + position * s.choices;
  const C* const d = dweight + position * s.choices;
  C sum = least_sum<C>, dot = 0;
  for (int i = 0; i < s.choices; ++i) {
    sum += at.scores[chosen[i]];
    dot += d[i] * at.scores[chosen[i]];
  }
  // This writes d scores, for the chosen experts alone.
  for (int e = lane; e < n; e += warp_size) at.ranked[e] = 0;
  __syncthreads();
  const C scale = static_cast<C>(s.scale);
  for (int i = lane; i < s.choices; i += warp_size)
    at.ranked[chosen[i]] = s.normalise ? scale * (d[i] - dot / sum) / sum : scale * d[i];
  __syncthreads();
  C mean = 0;
  for (int i = 0; i < s.choices; ++i) mean += at.ranked[chosen[i]] * at.scores[chosen[i]];
  for (int e = lane; own < s.positions && e < n; e += warp_size) {
    const C score = at.scores[e];
    dlogits[position * s.routes + e] =
        s.sigmoid ? at.ranked[e] * score * (C(1) - score) : score * (at.ranked[e] - mean);
  }
}

std::int64_t shared_bytes(const RouteShape& s, std::int64_t size) {
  return warps * (2 * s.routes + s.groups) * size;
}

}  // namespace

bool routes_fit(std::int64_t routes, std::int64_t size_of_score) {
  return warps * 3 * routes * size_of_score <= most_shared;
}

template <class C>
void route(const C* logits, const C* bias, std::int32_t* index, C* weight, const RouteShape& s,
           Stream stream) {
  const auto bytes = static_cast<std::size_t>(shared_bytes(s, sizeof(C)));
  route_kernel<C><<<grid_of(ceil_div(s.positions, warps)), warps * warp_size, bytes, stream>>>(
      logits, bias, index, weight, s);
  check_launch("route");
}

template <class C>
void route_grad(const C* logits, const std::int32_t* index, const C* dweight, C* dlogits, const RouteShape& s,
                Stream stream) {
  const auto bytes = static_cast<std::size_t>(shared_bytes(s, sizeof(C)));
  route_grad_kernel<C><<<grid_of(ceil_div(s.positions, warps)), warps * warp_size, bytes, stream>>>(
      logits, index, dweight, dlogits, s);
  check_launch("route_grad");
}

template void route(const float*, const float*, std::int32_t*, float*, const RouteShape&, Stream);
template void route(const double*, const double*, std::int32_t*, double*, const RouteShape&, Stream);
template void route_grad(const float*, const std::int32_t*, const float*, float*, const RouteShape&, Stream);
template void route_grad(const double*, const std::int32_t*, const double*, double*, const RouteShape&,
                         Stream);

}  // namespace prun::cuda
