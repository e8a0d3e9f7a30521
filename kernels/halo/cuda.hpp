// Brings chunks of a sequence the positions in front of them (kernels/halo/halo.cpp), by copies.
#pragma once

#include "collective/cuda.hpp"
#include "elementwise/cuda.hpp"
#include "memory/cuda.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cuda {

// Says how a rank's part of the sequences is cut into chunks.
struct HaloChunks {
  std::int64_t samples, count;  // count: chunks of a sample here
  std::int64_t rows, reach;     // positions of a chunk, and of what goes in front of one
  std::int64_t row_bytes;
  // A chunk takes the positions in front of it from the chunk that is `distance` before it. A whole sequence
  // has `parts`; with `chunks`, they lie in another order.
  std::int64_t distance = 0, parts = 0, chunks = 0;
  std::int64_t first = 0;  // the place of the first chunk here

  static constexpr std::int64_t elsewhere = -1, nowhere = -2;

  std::int64_t all() const { return samples * count; }
  std::int64_t chunk() const { return rows * row_bytes; }
  std::int64_t tail() const { return reach * row_bytes; }
  // Returns the chunk here that comes `by` behind chunk j here; `elsewhere` if another rank has it, and
  // `nowhere` if the sequence ends before it.
  std::int64_t behind(std::int64_t j, std::int64_t by) const {
    const SequenceOrder order{chunks > 0 ? 1 : 0, chunks};
    const std::int64_t number = order.position(first + j) + by;
    if (number < 0 || number >= parts) return nowhere;
    for (std::int64_t other = 0; other < count; ++other)
      if (order.position(first + other) == number) return other;
    return elsewhere;
  }
};

inline void halo_tails(const void* x, void* tails, const HaloChunks& c, Stream stream) {
  take(x, tails, c.all(), c.chunk(), c.chunk() - c.tail(), c.tail(), stream);
}

// Puts in front of each chunk what others have sent, or what is here: the tail of a chunk in x.
inline void join_halo(const void* x, const void* halo, void* y, const HaloChunks& c, Stream stream) {
  put(x, y, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream);
  for (std::int64_t i = 0; i < c.all(); ++i) {
    char* const front = static_cast<char*>(y) + i * (c.tail() + c.chunk());
    const std::int64_t j = i % c.count, from = c.behind(j, -c.distance);
    if (from == HaloChunks::nowhere)
      zero(front, c.tail(), stream);
    else if (from == HaloChunks::elsewhere)
      copy(static_cast<const char*>(halo) + i * c.tail(), front, c.tail(), stream);
    else
      copy(static_cast<const char*>(x) + (i - j + from + 1) * c.chunk() - c.tail(), front, c.tail(), stream);
  }
}

inline void part_halo(const void* y, void* x, void* halo, const HaloChunks& c, Stream stream) {
  take(y, x, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream);
  take(y, halo, c.all(), c.tail() + c.chunk(), 0, c.tail(), stream);
}

// `tails` came back from others, and `own` are what has been parted here.
template <class T>
void add_tails(const T* x, const T* tails, const T* own, T* y, const HaloChunks& c, Stream stream) {
  const std::int64_t size = sizeof(T), numbers = c.tail() / size;
  copy(x, y, c.all() * c.chunk(), stream);
  for (std::int64_t i = 0; i < c.all(); ++i) {
    const std::int64_t j = i % c.count, reader = c.behind(j, c.distance);
    if (reader == HaloChunks::nowhere) continue;
    T* const to = y + ((i + 1) * c.chunk() - c.tail()) / size;
    const T* const added =
        reader == HaloChunks::elsewhere ? tails + i * numbers : own + (i - j + reader) * numbers;
    add<T>(to, added, to, numbers, stream);
  }
}

}  // namespace prun::cuda
