#include "sequence/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

constexpr unsigned threads = 256;

__global__ void positions_kernel(std::int32_t* result, std::int64_t first, std::int64_t count,
                                 SequenceOrder order) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) result[i] = static_cast<std::int32_t>(order.position(first + i));
}

}  // namespace

void positions(std::int32_t* result, std::int64_t first, std::int64_t count, const SequenceOrder& order,
               Stream stream) {
  if (count == 0) return;
  positions_kernel<<<grid_of(ceil_div(count, threads)), threads, 0, stream>>>(result, first, count, order);
  check_launch("positions");
}

}  // namespace prun::cuda
