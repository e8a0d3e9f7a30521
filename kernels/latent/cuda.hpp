// Declares latent_heads, split_latent and narrow_heads, and their gradients (kernels/latent/latent.hpp).
#pragma once

#include "cuda/launch.hpp"
#include "rope_frequency.hpp"

namespace prun::cuda {

struct LatentShape {
  std::int64_t batch, seq, heads, head_dim, turned, values;
  bool interleaved = true;                  // says which channels make a pair in the operand
  std::int64_t first_position = 0;          // that of the first row of seq
  RopeTurn turn = {};                       // query_scale is for whole queries, key_scale for what turns
  const double* position = nullptr;         // is added to it, on the device; null: nothing
  const std::int32_t* positions = nullptr;  // by row of seq, on the device; null: in order

  std::int64_t latent() const { return head_dim - turned + values; }
};

// Shapes are x, q, k, v [batch, seq, heads, head_dim], kv [batch, seq, heads, latent()], shared [batch, seq,
// turned].
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

// Shapes are whole [rows, first_width + last_width], first [rows, first_width], last [rows, last_width].
template <class T>
void split_latent(const T* whole, T* first, T* last, std::int64_t rows, std::int64_t first_width,
                  std::int64_t last_width, Stream stream);
template <class T>
void join_latent(const T* first, const T* last, T* whole, std::int64_t rows, std::int64_t first_width,
                 std::int64_t last_width, Stream stream);

// Copies x [rows, from] into y [rows, to]: columns left over are dropped, those missing are zero.
template <class T>
void set_width(const T* x, T* y, std::int64_t rows, std::int64_t from, std::int64_t to, Stream stream);

}  // namespace prun::cuda
