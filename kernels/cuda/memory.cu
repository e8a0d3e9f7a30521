#include "cuda/memory.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {

void zero(void* to, std::int64_t bytes, Stream stream) {
  check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream), "zero");
}

void copy(const void* from, void* to, std::int64_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream), "copy");
}

}  // namespace prun::cuda
