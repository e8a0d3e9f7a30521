// Declares rope, which takes queries, keys and values out of their packed projection, the first two turned by
// their position, and rope_grad, which turns their gradients back and packs them.
#pragma once

#include "cuda/launch.hpp"
#include "rope_frequency.hpp"

namespace prun::cuda {

struct RopeShape {
  std::int64_t batch, seq, heads, packed, head_dim;
  std::int64_t first_position = 0;  // that of the first row of seq
  RopeTurn turn = {};
  const double* position = nullptr;         // is added to it, on the device; null: nothing
  const std::int32_t* positions = nullptr;  // by row of seq, on the device; null: in order
  RopePairs pairs = {head_dim / 2, false};
};

// Shapes are x [batch, seq, heads, packed, head_dim], q [batch, seq, heads, packed - 2, head_dim], k, v
// [batch, seq, heads, head_dim].
template <class T>
void rope(const T* x, T* q, T* k, T* v, const RopeShape& shape, Stream stream);

template <class T>
void rope_grad(const T* dq, const T* dk, const T* dv, T* dx, const RopeShape& shape, Stream stream);

// Does the same with x in two: its queries, and its keys and values [batch, seq, heads, 2, head_dim].
template <class T>
void rope_apart(const T* first, const T* last, T* q, T* k, T* v, const RopeShape& shape, Stream stream);

template <class T>
void rope_apart_grad(const T* dq, const T* dk, const T* dv, T* first, T* last, const RopeShape& shape,
                     Stream stream);

}  // namespace prun::cuda
