// Brings chunks of a sequence the positions in front of them (core/ops/halo.cpp), by copies.
#pragma once

#include "cuda/collective.hpp"
#include "cuda/elementwise.hpp"
#include "cuda/memory.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cuda {

// Says how a rank's part of the sequences is cut into chunks.
struct HaloChunks {
  std::int64_t samples, count;  // count: chunks of a sample here
  std::int64_t rows, reach;     // positions of a chunk, and of those in front of it
  std::int64_t row_bytes;
  std::int64_t parts = 0, chunks = 0;  // of a whole sequence; with `chunks` they lie in another order
  std::int64_t first = 0;              // the place of the first position here

  std::int64_t all() const { return samples * count; }
  std::int64_t chunk() const { return rows * row_bytes; }
  std::int64_t tail() const { return reach * row_bytes; }
  // Returns the number of the chunk before chunk j here, or -1.
  std::int64_t before(std::int64_t j) const {
    return SequenceOrder{chunks > 0 ? rows : 0, chunks}.position(first + j * rows) / rows - 1;
  }
};

inline void halo_tails(const void* x, void* tails, const HaloChunks& c, Stream stream) {
  take(x, tails, c.all(), c.chunk(), c.chunk() - c.tail(), c.tail(), stream);
}

// Calls body(place among all tails, or -1; place in front of a chunk), in bytes, for each chunk.
template <class Body>
void for_halos(const HaloChunks& c, const Body& body) {
  for (std::int64_t sample = 0; sample < c.samples; ++sample)
    for (std::int64_t j = 0; j < c.count; ++j)
      body(c.before(j) < 0 ? -1 : (sample * c.parts + c.before(j)) * c.tail(),
           (sample * c.count + j) * (c.tail() + c.chunk()));
}

inline void join_halo(const void* x, const void* halo, void* y, const HaloChunks& c, Stream stream) {
  put(x, y, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream);
  for_halos(c, [&](std::int64_t from, std::int64_t to) {
    char* const front = static_cast<char*>(y) + to;
    if (from < 0)
      zero(front, c.tail(), stream);
    else
      copy(static_cast<const char*>(halo) + from, front, c.tail(), stream);
  });
}

inline void part_halo(const void* y, void* x, void* halo, const HaloChunks& c, Stream stream) {
  take(y, x, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream);
  zero(halo, c.samples * c.parts * c.tail(), stream);
  for_halos(c, [&](std::int64_t to, std::int64_t from) {
    if (to >= 0) copy(static_cast<const char*>(y) + from, static_cast<char*>(halo) + to, c.tail(), stream);
  });
}

// Without x, what is not in a tail is zero.
template <class T>
void add_tails(const T* x, const T* tails, T* y, const HaloChunks& c, Stream stream) {
  const std::int64_t size = sizeof(T), numbers = c.tail() / size;
  if (x)
    copy(x, y, c.all() * c.chunk(), stream);
  else
    zero(y, c.all() * c.chunk(), stream);
  for (std::int64_t i = 0; i < c.all(); ++i) {
    T* const to = y + ((i + 1) * c.chunk() - c.tail()) / size;
    add<T>(to, tails + i * numbers, to, numbers, stream);
  }
}

}  // namespace prun::cuda
