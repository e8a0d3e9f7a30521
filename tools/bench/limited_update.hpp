// Declares an update like AdamW's that a given number of blocks does, so that the other multiprocessors are
// free for what runs beside it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace prun::bench {

// Holds arrays of as many numbers as there are parameters, a multiple of 4.
struct UpdatedTensor {
  const float* gradient;
  float *m, *v, *master;
  __nv_bfloat16* weight;
  std::int64_t elements;

  static constexpr std::int64_t bytes_per_element = 4 * 4 + 3 * 4 + 2;
};

void update_by(int blocks, const UpdatedTensor& tensor, cudaStream_t stream);

}  // namespace prun::bench
