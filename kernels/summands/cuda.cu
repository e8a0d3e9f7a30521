#include "summands/cuda.hpp"

#include <algorithm>

#include "cuda/device.cuh"
#include "summand_rule.hpp"

namespace prun::cuda {
namespace {

inline constexpr int threads = 256;

unsigned grid_for(std::int64_t elements) {
  return grid_of(
      std::max<std::int64_t>(1, std::min<std::int64_t>(ceil_div(elements, threads), 8 * multiprocessors())));
}

template <class Body>
__device__ void each_element(std::int64_t n, Body body) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * threads)
    body(i);
}

__global__ __launch_bounds__(threads) void keep_kernel(const std::uint32_t* x, std::uint32_t* summands,
                                                       std::int64_t words, std::int64_t rows) {
  each_element(words, [&](std::int64_t i) {
    for (std::int64_t r = 0; r + 1 < rows; ++r) summands[r * words + i] = summands[(r + 1) * words + i];
    summands[(rows - 1) * words + i] = x[i];
  });
}

template <class T>
__global__ __launch_bounds__(threads) void momentum_kernel(MomentumSummand<T> of) {
  const MomentumRule<Compute<T>> rule(of.beta, of.summands, *of.clip);
  each_element(of.elements,
               [&](std::int64_t i) { of.summand[i] = rule(load(of.gradient + i), of.m[i % of.row]); });
}

template <class C>
__global__ __launch_bounds__(threads) void direction_kernel(FrozenDirection<C> of, FrozenRule<C> rule) {
  const bool keep = *of.keep != 0;
  each_element(of.elements, [&](std::int64_t i) {
    const C now = of.sum[i];
    of.direction[i] = rule(now, of.v[i]);
    if (keep) of.m[i] = now;
  });
}

}  // namespace

void keep_summand(const void* x, void* summands, std::int64_t bytes, std::int64_t rows, Stream stream) {
  const std::int64_t words = bytes / 4;
  keep_kernel<<<grid_for(words), threads, 0, stream>>>(static_cast<const std::uint32_t*>(x),
                                                       static_cast<std::uint32_t*>(summands), words, rows);
  check_launch("keep_summand");
}

template <class T>
void momentum_summand(const MomentumSummand<T>& of, Stream stream) {
  if (of.elements == 0) return;
  momentum_kernel<<<grid_for(of.elements), threads, 0, stream>>>(of);
  check_launch("momentum_summand");
}

template <class C>
void frozen_direction(const FrozenDirection<C>& of, Stream stream) {
  if (of.elements == 0) return;
  direction_kernel<<<grid_for(of.elements), threads, 0, stream>>>(
      of, FrozenRule<C>(of.eps, of.beta, of.frozen_at));
  check_launch("frozen_direction");
}

template void momentum_summand<double>(const MomentumSummand<double>&, Stream);
template void momentum_summand<float>(const MomentumSummand<float>&, Stream);
template void momentum_summand<bf16>(const MomentumSummand<bf16>&, Stream);
template void momentum_summand<f16>(const MomentumSummand<f16>&, Stream);
template void frozen_direction<double>(const FrozenDirection<double>&, Stream);
template void frozen_direction<float>(const FrozenDirection<float>&, Stream);

}  // namespace prun::cuda
