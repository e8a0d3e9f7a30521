// Declares what surrounds an exchange along a dimension: blocks made and undone, a part taken, a summand
// gated. It moves bytes of any type.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Sets to[b][a] = from[a][b], where each is a run of `bytes`.
void swap_outer(const void* from, void* to, std::int64_t a, std::int64_t b, std::int64_t bytes,
                Stream stream);

// to[i] = from[i * stride + first], `count` runs of so many bytes; stride and first in bytes as well.
void take(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
          std::int64_t bytes, Stream stream);

// The other way: to[i * stride + first] = from[i].
void put(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
         std::int64_t bytes, Stream stream);

// The chunks of each sample's sequence, of so many bytes, in the order of positions, from that in which ranks
// have them (prun/sequence_order.hpp); `back`: the other way.
void reorder_chunks(const void* from, void* to, std::int64_t samples, std::int64_t chunks, std::int64_t bytes,
                    bool back, Stream stream);

// to = from where *open, a number on the device, is not 0, otherwise zeros.
void gate(const void* from, const double* open, void* to, std::int64_t bytes, Stream stream);

}  // namespace prun::cuda
