// Declares dropout, which drops the elements that kernels/cpu drops: a function of (seed, layer, stream,
// sample number, position, channel) alone. Its gradient is the same op.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct DropoutShape {
  std::int64_t batch, seq, width;
  std::int64_t first_position = 0, first_channel = 0;  // say where this shard begins in the whole tensor
  double p;
  std::int64_t layer, stream;
  const std::int32_t* positions = nullptr;  // by row of seq, on the device; null: in order
};

// Shapes are x, y [batch, seq, width]; the samples' numbers [batch] and the seed lie on the device. y may be
// x.
template <class T>
void dropout(const T* x, const std::int64_t* samples, const double* seed, T* y, const DropoutShape& shape,
             Stream stream);

}  // namespace prun::cuda
