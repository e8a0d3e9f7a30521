// Declares zero, copy and checksum for bytes of any type; copy's and the sums may also lie in pinned host
// memory.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void zero(void* to, std::int64_t bytes, Stream stream);
void copy(const void* from, void* to, std::int64_t bytes, Stream stream);
// Sums elements of 1, 2, 4 or 8 bytes; the sums add up to the checksum.
void checksum(const void* x, std::int64_t elements, std::int64_t element_bytes, std::uint64_t* sums,
              std::int64_t sum_count, Stream stream);

}  // namespace prun::cuda
