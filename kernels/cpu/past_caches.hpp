// Copies what nothing reads soon past the caches: a line that is written whole need not be read first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "cpu/isa.hpp"

namespace prun::cpu::PRUN_ISA {

// Other threads may read what is copied once this thread has called order_copies().
inline void copy_past_caches(const std::byte* from, std::byte* to, std::int64_t bytes) {
#ifdef __SSE2__
  constexpr std::int64_t line = 64, vector = sizeof(__m128i);
  const std::int64_t before =
      (line - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % line)) % line;
  std::int64_t at = std::min(bytes, before);
  if (at > 0) std::memcpy(to, from, static_cast<std::size_t>(at));
  for (; at + line <= bytes; at += line)
    for (std::int64_t i = at; i < at + line; i += vector)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  if (at < bytes) std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

// It waits for what is on its way to memory: a call for many copies takes less time than one for each.
inline void order_copies() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace prun::cpu::PRUN_ISA
