// Computes Philox4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
// for as many counters at once as a register has 64-bit lanes.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/isa.hpp"

namespace prun::cpu::PRUN_ISA {

struct PhiloxKey {
  std::uint32_t low;
  std::uint32_t high;
};

// Holds 32-bit words, one a lane. Between rounds the upper halves hold garbage, which nothing reads.
using Words = Vector<std::uint64_t>;
inline constexpr int philox_lanes = vector_lanes<std::uint64_t>;

// Returns products of the lanes' lower halves. GCC multiplies whole 64-bit lanes, which takes several times
// as long.
inline Words product(Words a, Words b) {
#if PRUN_ISA_RANK == 2
  // This is the masked form with a full mask: GCC 12 warns about its own header in the plain form.
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

// Holds counters, and after philox() the blocks that belong to them.
struct PhiloxState {
  Words a, b, c, d;

  void round(PhiloxKey key) {
    const Words first = product(a, Words{} + 0xD2511F53u), second = product(c, Words{} + 0xCD9E8D57u);
    a = (second >> 32) ^ b ^ key.low;
    b = second;
    c = (first >> 32) ^ d ^ key.high;
    d = first;
  }
  // Stores the words of all blocks, one block after the other.
  void store(std::uint32_t* words) const {
    static_assert(std::endian::native == std::endian::little, "a pair's earlier word lies first");
    const Words first = (a & 0xffffffffu) | b << 32, second = (c & 0xffffffffu) | d << 32;
    std::uint64_t pairs[2 * philox_lanes];
    for (int l = 0; l < philox_lanes; ++l) {
      pairs[2 * l] = first[l];
      pairs[2 * l + 1] = second[l];
    }
    std::memcpy(words, pairs, sizeof pairs);
  }
};

// Takes two states at a time: the rounds of one wait for each other, those of the other fill the gaps.
template <int rounds>
void philox(PhiloxState& x, PhiloxState& y, PhiloxKey key) {
#pragma GCC unroll 10
  for (int round = 0; round < rounds; ++round) {
    x.round(key);
    y.round(key);
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
}

}  // namespace prun::cpu::PRUN_ISA
