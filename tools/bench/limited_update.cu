#include "tools/bench/limited_update.hpp"

namespace prun::bench {
namespace {

constexpr int threads = 512, unrolled = 2;

__device__ float4 moved(float4 average, float4 to, float keep) {
  const float rest = 1 - keep;
  return {keep * average.x + rest * to.x, keep * average.y + rest * to.y, keep * average.z + rest * to.z,
          keep * average.w + rest * to.w};
}

__device__ float stepped(float weight, float m, float v) { return weight - 1e-4F * m / (sqrtf(v) + 1e-8F); }

__device__ void update_four(const UpdatedTensor& t, std::int64_t at) {
  const float4 g = __ldcs(reinterpret_cast<const float4*>(t.gradient) + at);
  const float4 m = moved(__ldcs(reinterpret_cast<const float4*>(t.m) + at), g, 0.9F);
  const float4 squares = {g.x * g.x, g.y * g.y, g.z * g.z, g.w * g.w};
  const float4 v = moved(__ldcs(reinterpret_cast<const float4*>(t.v) + at), squares, 0.95F);
  float4 w = __ldcs(reinterpret_cast<const float4*>(t.master) + at);
  w = {stepped(w.x, m.x, v.x), stepped(w.y, m.y, v.y), stepped(w.z, m.z, v.z), stepped(w.w, m.w, v.w)};
  __stcs(reinterpret_cast<float4*>(t.m) + at, m);
  __stcs(reinterpret_cast<float4*>(t.v) + at, v);
  __stcs(reinterpret_cast<float4*>(t.master) + at, w);
  auto* rounded = reinterpret_cast<__nv_bfloat162*>(t.weight) + 2 * at;
  rounded[0] = __floats2bfloat162_rn(w.x, w.y);
  rounded[1] = __floats2bfloat162_rn(w.z, w.w);
}

__global__ __launch_bounds__(threads) void update_kernel(UpdatedTensor t) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  for (; at < t.elements / 4; at += unrolled * stride)
#pragma unroll
    for (int u = 0; u < unrolled; ++u)
      if (at + u * stride < t.elements / 4) update_four(t, at + u * stride);
}

}  // namespace

void update_by(int blocks, const UpdatedTensor& tensor, cudaStream_t stream) {
  update_kernel<<<blocks, threads, 0, stream>>>(tensor);
}

}  // namespace prun::bench
