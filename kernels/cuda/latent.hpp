// Declares latent_heads and its gradient, split_latent, narrow_heads and theirs (core/ops/latent.cpp).
#pragma once

#include "cuda/launch.hpp"
#include "rope_frequency.hpp"

namespace prun::cuda {

struct LatentShape {
  std::int64_t batch, seq, heads, head_dim, turned, values;
  bool interleaved = true;                  // which channels make a pair where they come in
  std::int64_t first_position = 0;          // of the first row of seq
  RopeTurn turn = {};                       // query_scale: of whole queries; key_scale: of what turns
  const double* position = nullptr;         // added to it, on the device; null: nothing
  const std::int32_t* positions = nullptr;  // of each row of seq, on the device; null: one after the other

  std::int64_t latent() const { return head_dim - turned + values; }
};

// The shapes are x, q, k, v [batch, seq, heads, head_dim], kv [batch, seq, heads, latent()], shared [batch,
// seq, turned].
template <class T>
struct LatentHeads {
  T *x, *kv, *shared, *q, *k, *v;
};

// Sets q, k and v.
template <class T>
void latent_heads(const LatentHeads<T>& heads, const LatentShape& shape, Stream stream);

// Sets x, kv and shared, which are gradients like all others.
template <class T>
void latent_heads_grad(const LatentHeads<T>& heads, const LatentShape& shape, Stream stream);

// The shapes are whole [rows, first_width + last_width], first [rows, first_width], last [rows, last_width].
template <class T>
void split_latent(const T* whole, T* first, T* last, std::int64_t rows, std::int64_t first_width,
                  std::int64_t last_width, Stream stream);
template <class T>
void join_latent(const T* first, const T* last, T* whole, std::int64_t rows, std::int64_t first_width,
                 std::int64_t last_width, Stream stream);

// x [rows, from], y [rows, to]: what is left over is left out, what is missing is zero.
template <class T>
void set_width(const T* x, T* y, std::int64_t rows, std::int64_t from, std::int64_t to, Stream stream);

}  // namespace prun::cuda
