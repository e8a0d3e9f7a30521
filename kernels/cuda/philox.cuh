// Draws with Philox4x32-7 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011) the bits that kernels/cpu/philox.hpp draws.
#pragma once

#include <cstdint>

#include "philox_rounds.hpp"

namespace prun::cuda {

struct PhiloxKey {
  std::uint32_t low;
  std::uint32_t high;
};

struct PhiloxBlock {
  std::uint32_t word[4];
};

__device__ __forceinline__ PhiloxBlock philox(PhiloxBlock x, PhiloxKey key) {
#pragma unroll
  for (int round = 0; round < rounds_of_steps; ++round) {
    const std::uint64_t first = static_cast<std::uint64_t>(x.word[0]) * 0xD2511F53u;
    const std::uint64_t second = static_cast<std::uint64_t>(x.word[2]) * 0xCD9E8D57u;
    x = {{static_cast<std::uint32_t>(second >> 32) ^ x.word[1] ^ key.low, static_cast<std::uint32_t>(second),
          static_cast<std::uint32_t>(first >> 32) ^ x.word[3] ^ key.high, static_cast<std::uint32_t>(first)}};
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return x;
}

}  // namespace prun::cuda
