// Declares the ops around an exchange along a dimension: blocks made and undone, a part taken, a summand
// gated. It moves bytes of any type.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Sets to[b][a] = from[a][b], where each is a run of `bytes`.
void swap_outer(const void* from, void* to, std::int64_t a, std::int64_t b, std::int64_t bytes,
                Stream stream);

// Sets to[i] = from[i * stride + first], `count` runs of `bytes` bytes; stride and first are in bytes as
// well.
void take(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
          std::int64_t bytes, Stream stream);

// Does it the other way: to[i * stride + first] = from[i].
void put(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
         std::int64_t bytes, Stream stream);

// Puts the chunks of each sample's sequence, of `bytes` bytes, in the order of positions, from the order in
// which ranks have them (prun/sequence_order.hpp); `back` says to do it the other way.
void reorder_chunks(const void* from, void* to, std::int64_t samples, std::int64_t chunks, std::int64_t bytes,
                    bool back, Stream stream);

// Sets to = from where *open, a number on the device, is not 0, otherwise zeros.
void gate(const void* from, const double* open, void* to, std::int64_t bytes, Stream stream);

}  // namespace prun::cuda
