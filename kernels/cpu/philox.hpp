// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011), for as
// many counters at once as a register has 64-bit lanes.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "cpu/isa.hpp"

namespace prun::cpu::PRUN_ISA {

struct PhiloxKey {
  std::uint32_t low;
  std::uint32_t high;
};

// 32-bit words, one a lane. Between rounds the upper halves hold rubbish, which nothing looks at.
using Words = Vector<std::uint64_t>;
inline constexpr int philox_lanes = vector_lanes<std::uint64_t>;

// Products of the lanes' lower halves. GCC multiplies 64-bit lanes whole, which takes several times as long.
inline Words product(Words a, Words b) {
#if PRUN_ISA_RANK == 2
  // The masked form with a full mask: GCC 12 warns about its own header in the plain one.
  return reinterpret_cast<Words>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif PRUN_ISA_RANK == 1
  return reinterpret_cast<Words>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Words>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Two neighbouring words of each block, the earlier one in the lower half.
struct PhiloxPairs {
  Words first;
  Words second;
};

// The blocks of the counters {a, b, c, d}.
inline PhiloxPairs philox(Words a, Words b, Words c, Words d, PhiloxKey key) {
  constexpr Words from_a = Words{} + 0xD2511F53u, from_c = Words{} + 0xCD9E8D57u;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Words first = product(a, from_a), second = product(c, from_c);
    a = (second >> 32) ^ b ^ key.low;
    b = second;
    c = (first >> 32) ^ d ^ key.high;
    d = first;
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return {(a & 0xffffffffu) | b << 32, (c & 0xffffffffu) | d << 32};
}

}  // namespace prun::cpu::PRUN_ISA
