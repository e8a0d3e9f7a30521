// Sums some numbers in a fixed order, by one block: this is the last stage of the losses.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

template <class C>
__global__ __launch_bounds__(1024) void number_sum_kernel(const C* numbers, std::int64_t count, C* sum) {
  __shared__ C scratch[32];
  C part = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) part += numbers[i];
  part = block_fold(part, C(0), Add(), scratch);
  if (threadIdx.x == 0) *sum += part;
}

// Adds the sum of the numbers to *sum.
template <class C>
void add_numbers(const char* name, Stream stream, const C* numbers, std::int64_t count, C* sum) {
  number_sum_kernel<<<1, 1024, 0, stream>>>(numbers, count, sum);
  check_launch(name);
}

}  // namespace prun::cuda
