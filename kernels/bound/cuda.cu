#include "bound/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

// One thread looks at all layers: they are few.
__global__ void halt_beyond_kernel(const double* needed, std::int64_t layers, double* halt) {
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (needed[2 * layer] > needed[2 * layer + 1]) *halt = 1;
}

}  // namespace

void halt_beyond(const double* needed, std::int64_t layers, double* halt, Stream stream) {
  halt_beyond_kernel<<<1, 1, 0, stream>>>(needed, layers, halt);
  check_launch("halt_beyond");
}

}  // namespace prun::cuda
