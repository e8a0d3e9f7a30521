// dropout drops the elements that kernels/cpu drops. Which ones is a function of (seed, layer, stream, sample
// number, position, channel) alone; its gradient is the same op.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct DropoutShape {
  std::int64_t batch, seq, width;
  std::int64_t first_position = 0, first_channel = 0;  // of this shard in the whole tensor
  double p;
  std::int64_t layer, stream;
  const std::int32_t* positions = nullptr;  // of each row of seq, on the device; null: one after the other
};

// x, y [batch, seq, width]; the samples' numbers [batch] and the seed lie on the device. y may be x.
template <class T>
void dropout(const T* x, const std::int64_t* samples, const double* seed, T* y, const DropoutShape& shape,
             Stream stream);

}  // namespace prun::cuda
