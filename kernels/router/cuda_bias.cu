#include "router/cuda_bias.hpp"

#include "cuda/check.hpp"
#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

template <class T>
__global__ void router_bias_kernel(const T* bias, Compute<T>* scores, std::int64_t count,
                                   std::int64_t routes) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) scores[i] += load(bias + i % routes);
}

}  // namespace

template <class T>
void add_router_bias(const T* bias, Compute<T>* scores, std::int64_t rows, std::int64_t routes,
                     Stream stream) {
  const std::int64_t count = rows * routes;
  if (count == 0) return;
  router_bias_kernel<T><<<grid_of(ceil_div(count, 256)), 256, 0, stream>>>(bias, scores, count, routes);
  check_launch("router");
}

template void add_router_bias<double>(const double*, double*, std::int64_t, std::int64_t, Stream);
template void add_router_bias<float>(const float*, float*, std::int64_t, std::int64_t, Stream);
template void add_router_bias<bf16>(const bf16*, float*, std::int64_t, std::int64_t, Stream);
template void add_router_bias<f16>(const f16*, float*, std::int64_t, std::int64_t, Stream);

}  // namespace prun::cuda
