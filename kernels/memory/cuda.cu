#include "memory/cuda.hpp"

#include "cuda/device.cuh"
#include "prun/checksum.hpp"

namespace prun::cuda {
namespace {

constexpr int checksum_threads = 512;

// Each block writes a sum of its own.
template <class Bits>
__global__ __launch_bounds__(checksum_threads) void checksum_kernel(const Bits* x, std::int64_t n,
                                                                    std::uint64_t* sums) {
  __shared__ std::uint64_t scratch[32];
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * checksum_threads;
  std::uint64_t sum = 0;
#pragma unroll 8
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * checksum_threads + threadIdx.x; i < n;
       i += stride)
    sum += checksum_term(x[i], i);
  sum = block_fold(sum, std::uint64_t{0}, Add(), scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class Bits>
void launch_checksum(const void* x, std::int64_t n, std::uint64_t* sums, std::int64_t sum_count,
                     Stream stream) {
  checksum_kernel<<<static_cast<unsigned>(sum_count), checksum_threads, 0, stream>>>(
      static_cast<const Bits*>(x), n, sums);
  check_launch("checksum");
}

}  // namespace

void zero(void* to, std::int64_t bytes, Stream stream) {
  check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream), "zero");
}

void copy(const void* from, void* to, std::int64_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream), "copy");
}

void checksum(const void* x, std::int64_t elements, std::int64_t element_bytes, std::uint64_t* sums,
              std::int64_t sum_count, Stream stream) {
  switch (element_bytes) {
    case 8: return launch_checksum<std::uint64_t>(x, elements, sums, sum_count, stream);
    case 4: return launch_checksum<std::uint32_t>(x, elements, sums, sum_count, stream);
    case 2: return launch_checksum<std::uint16_t>(x, elements, sums, sum_count, stream);
    default: return launch_checksum<std::uint8_t>(x, elements, sums, sum_count, stream);
  }
}

}  // namespace prun::cuda
