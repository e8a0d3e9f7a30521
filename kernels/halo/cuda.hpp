// Brings chunks of a sequence the positions in front of them (kernels/halo/halo.cpp), by copies.
#pragma once

#include "collective/cuda.hpp"
#include "elementwise/cuda.hpp"
#include "halo/chunks.hpp"
#include "memory/cuda.hpp"

namespace prun::cuda {

// Has the chunks of so many samples, whose rows have so many bytes.
struct HaloCopies : HaloChunks {
  std::int64_t samples, row_bytes;

  std::int64_t all() const { return samples * count; }
  std::int64_t chunk() const { return rows * row_bytes; }
  std::int64_t tail() const { return reach * row_bytes; }
};

inline void halo_tails(const void* x, void* tails, const HaloCopies& c, Stream stream) {
  take(x, tails, c.all(), c.chunk(), c.chunk() - c.tail(), c.tail(), stream);
}

// Puts in front of each chunk what others have sent, or what is here: the tail of a chunk in x.
inline void join_halo(const void* x, const void* halo, void* y, const HaloCopies& c, Stream stream) {
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

inline void part_halo(const void* y, void* x, void* halo, const HaloCopies& c, Stream stream) {
  take(y, x, c.all(), c.tail() + c.chunk(), c.tail(), c.chunk(), stream);
  take(y, halo, c.all(), c.tail() + c.chunk(), 0, c.tail(), stream);
}

// `tails` came back from others, and `own` are what has been parted here.
template <class T>
void add_tails(const T* x, const T* tails, const T* own, T* y, const HaloCopies& c, Stream stream) {
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
