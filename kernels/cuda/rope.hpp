// rope: rotary position embedding on packed queries, keys and values; the last packed slot, the value, stays.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RopeShape {
  std::int64_t batch, seq, heads, packed, head_dim;
  std::int64_t first_position = 0;  // of the first row of seq
  double base = 10000;
  bool inverse = false;
};

// x, y [batch, seq, heads, packed, head_dim]; y may be x, and the values are then not touched.
template <class T>
void rope(const T* x, T* y, const RopeShape& shape, Stream stream);

}  // namespace prun::cuda
