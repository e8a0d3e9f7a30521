#include "attention/cuda_at.hpp"

#include <cmath>

#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

inline constexpr int at_warps = 16, keys_at_once = 4;

// Holds a lane's part of a row: chunks of N neighbouring channels, 32 of them apart.
template <int N, class T>
struct LaneRow {
  using C = Compute<T>;
  static constexpr int chunks = static_cast<int>(widest_head_at) / (32 * N);
  Lanes<C, N> of[chunks];

  static __device__ int channel(int chunk) { return (chunk * 32 + static_cast<int>(threadIdx.x) % 32) * N; }
  __device__ void load(const T* row, int width) {
#pragma unroll
    for (int i = 0; i < chunks; ++i)
      of[i] = channel(i) < width ? load_lanes<N>(row + channel(i)) : Lanes<C, N>{};
  }
};

// Holds, for the keys that a warp has seen, the largest score, and sums relative to it.
template <int N, class T>
struct Seen {
  using C = Compute<T>;
  C largest = -INFINITY, sum = 0;
  LaneRow<N, T> result = {};

  __device__ void shrink_to(C larger) {
    const C by = exp_of<T>(largest - larger);
    largest = larger;
    sum *= by;
#pragma unroll
    for (int i = 0; i < result.chunks; ++i)
#pragma unroll
      for (int n = 0; n < N; ++n) result.of[i][n] *= by;
  }
  __device__ void add(C score, const T* row, int width) {
    const C weight = exp_of<T>(score - largest);
    LaneRow<N, T> v;
    v.load(row, width);
    sum += weight;
#pragma unroll
    for (int i = 0; i < v.chunks; ++i)
#pragma unroll
      for (int n = 0; n < N; ++n) result.of[i][n] += weight * v.of[i][n];
  }
};

// Says where the keys or the values lie: those from `position` on are not kept yet. `begin` is the first one
// that is seen, `last` the last one.
template <class T>
struct Rows {
  const T *kept, *fresh;
  std::int64_t stride, position, begin, last;

  __device__ const T* at(std::int64_t key) const {
    return key < position ? kept + key * stride : fresh + (key - position) * stride;
  }
};

template <int N, class T>
__device__ Compute<T> dot(const LaneRow<N, T>& q, const T* key, int width) {
  LaneRow<N, T> k;
  k.load(key, width);
  Compute<T> sum = 0;
#pragma unroll
  for (int i = 0; i < k.chunks; ++i)
#pragma unroll
    for (int n = 0; n < N; ++n) sum += q.of[i][n] * k.of[i][n];
  return warp_fold(sum, Add());
}

// Adds nothing to the products of queries and keys.
template <class T>
struct NoBias {
  double scale;  // multiplies the products

  __device__ Compute<T> at(std::int64_t, std::int64_t) const { return 0; }
};

// Adds to each what a table has for the key's distance.
template <class T>
struct BiasAt {
  DistanceBias<T> bias;
  double scale = bias.scale;

  // Returns that of a head's key so far in front of its query.
  __device__ Compute<T> at(std::int64_t head, std::int64_t away) const {
    return load(bias.table + head * bias.bounds.count + bias.bounds.of_distance(away));
  }
};

// Visits the keys that belong to this warp, some at a time so that their loads overlap.
template <int N, class T, class Bias>
__device__ Seen<N, T> see(const LaneRow<N, T>& q, const Rows<T>& k, const Rows<T>& v, const Bias& bias,
                          std::int64_t head, Compute<T> softcap, int width) {
  using C = Compute<T>;
  Seen<N, T> seen;
  const C scale = static_cast<C>(bias.scale);
  const std::int64_t warp = threadIdx.x / 32;
  constexpr int at_a_time = at_warps * keys_at_once;
  for (std::int64_t first = k.begin / at_a_time * at_a_time + warp * keys_at_once; first <= k.last;
       first += at_a_time) {
    if (first + keys_at_once <= k.begin) continue;
    const auto is_seen = [&](int i) { return first + i >= k.begin && first + i <= k.last; };
    C score[keys_at_once], largest = seen.largest;
#pragma unroll
    for (int i = 0; i < keys_at_once; ++i) {
      score[i] = is_seen(i) ? scale * dot(q, k.at(first + i), width) + bias.at(head, k.last - (first + i))
                            : -INFINITY;
      if (softcap > 0 && is_seen(i)) score[i] = softcap * tanh(score[i] / softcap);
      largest = Larger()(largest, score[i]);
    }
    seen.shrink_to(largest);
#pragma unroll
    for (int i = 0; i < keys_at_once; ++i)
      if (is_seen(i)) seen.add(score[i], v.at(first + i), width);
  }
  return seen;
}

// A block has a query; its warps share out the keys, and their sums are put together in the warps' order.
template <int N, class T, class Bias>
__global__ __launch_bounds__(32 * at_warps) void attention_at_kernel(AttentionAt<T> call,
                                                                     const __grid_constant__ Bias bias) {
  using C = Compute<T>;
  __shared__ C largest_of[at_warps], sum_of[at_warps], result_of[at_warps][widest_head_at];
  const int width = static_cast<int>(call.head_dim), warp = static_cast<int>(threadIdx.x) / 32;
  // A block's row is counted in [batch, seq, heads, queries].
  const std::int64_t query = blockIdx.x % call.queries, group = blockIdx.x / call.queries;
  const std::int64_t head = group % call.heads, row = group / call.heads;
  const std::int64_t own = row % call.seq, sample = row / call.seq;
  const std::int64_t stride = call.heads * call.head_dim,
                     position = static_cast<std::int64_t>(*call.position);
  const std::int64_t kept = sample * call.kept * stride + head * call.head_dim;
  const std::int64_t fresh = sample * call.seq * stride + head * call.head_dim;
  const std::int64_t last = position + own,
                     begin = call.window > 0 && last >= call.window ? last - call.window + 1 : 0;
  const Rows<T> k{call.kept_k + kept, call.k + fresh, stride, position, begin, last};
  const Rows<T> v{call.kept_v + kept, call.v + fresh, stride, position, begin, last};
  LaneRow<N, T> q;
  q.load(call.q + static_cast<std::int64_t>(blockIdx.x) * width, width);
  const Seen<N, T> seen = see(q, k, v, bias, head, static_cast<C>(call.softcap), width);
  if (threadIdx.x % 32 == 0) {
    largest_of[warp] = seen.largest;
    sum_of[warp] = seen.sum;
  }
#pragma unroll
  for (int i = 0; i < q.chunks; ++i)
#pragma unroll
    for (int n = 0; n < N; ++n)
      if (q.channel(i) < width) result_of[warp][q.channel(i) + n] = seen.result.of[i][n];
  __syncthreads();
  C largest = largest_of[0], sum = 0;
  for (int w = 1; w < at_warps; ++w) largest = Larger()(largest, largest_of[w]);
  for (int w = 0; w < at_warps; ++w) sum += sum_of[w] * exp_of<T>(largest_of[w] - largest);
  for (int c = static_cast<int>(threadIdx.x); c < width; c += 32 * at_warps) {
    C result = 0;
    for (int w = 0; w < at_warps; ++w) result += result_of[w][c] * exp_of<T>(largest_of[w] - largest);
    store(call.y + static_cast<std::int64_t>(blockIdx.x) * width + c, result / sum);
    if (query != 0) continue;
    call.kept_k[kept + k.last * stride + c] = k.at(k.last)[c];
    call.kept_v[kept + v.last * stride + c] = v.at(v.last)[c];
  }
  if (threadIdx.x == 0)
    call.lse[((sample * call.heads + head) * call.queries + query) * call.seq + own] = largest + log(sum);
}

template <class T, class Bias>
void attend_at(const AttentionAt<T>& call, const Bias& bias, const char* name, Stream stream) {
  const std::int64_t rows = call.batch * call.seq * call.heads * call.queries;
  if (rows == 0) return;
  constexpr int most = std::min(4, chunk<T>);
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    attention_at_kernel<N><<<grid_of(rows), 32 * at_warps, 0, stream>>>(call, bias);
  };
  if (call.head_dim % most == 0 && aligned({call.q, call.k, call.v, call.kept_k, call.kept_v}))
    launch(std::integral_constant<int, most>());
  else
    launch(std::integral_constant<int, 1>());
  check_launch(name);
}

}  // namespace

template <class T>
void attention_at(const AttentionAt<T>& call, Stream stream) {
  attend_at(call, NoBias<T>{1.0 / std::sqrt(static_cast<double>(call.head_dim))}, "attention_at", stream);
}

template <class T>
void attention_biased_at(const AttentionAt<T>& call, const DistanceBias<T>& bias, Stream stream) {
  attend_at(call, BiasAt<T>{bias}, "attention_biased_at", stream);
}

template void attention_at<double>(const AttentionAt<double>&, Stream);
template void attention_at<float>(const AttentionAt<float>&, Stream);
template void attention_at<bf16>(const AttentionAt<bf16>&, Stream);
template void attention_at<f16>(const AttentionAt<f16>&, Stream);
template void attention_biased_at<double>(const AttentionAt<double>&, const DistanceBias<double>&, Stream);
template void attention_biased_at<float>(const AttentionAt<float>&, const DistanceBias<float>&, Stream);
template void attention_biased_at<bf16>(const AttentionAt<bf16>&, const DistanceBias<bf16>&, Stream);
template void attention_biased_at<f16>(const AttentionAt<f16>&, const DistanceBias<f16>&, Stream);

}  // namespace prun::cuda
