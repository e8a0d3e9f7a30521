// Implements SHA-256 as FIPS 180-4 writes it: a message schedule of 64 words, 64 rounds a block; and by the
// instructions that most x86 processors have for it, since each start of prun digests the plugins that it
// loads.
#include "base/sha256.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "prun/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace prun {
namespace {

// These are the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian_word(const std::byte* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return word;
}

std::array<std::uint32_t, 64> message_schedule(const std::byte* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian_word(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t a = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t b = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + a + w[t - 7] + b;
  }
  return w;
}

using State = std::array<std::uint32_t, 8>;

void absorb_in_software(State& state, const std::byte* block) {
  const std::array<std::uint32_t, 64> w = message_schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t first = h + sum1 + choice + round_constants[t] + w[t];
    const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + sum0 + majority;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += added[i];
}

#if defined(__x86_64__)
// GCC 12's __builtin_cpu_supports() does not know these instructions.
bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned sha = 1u << 29, ssse3 = 1u << 9, sse41 = 1u << 19;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & sha)) return false;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & ssse3) && (c & sse41);
}

// An instruction does two rounds with the words a b e f and c d g h of the state, and gives the next a b e f;
// those before are the next c d g h. Others make four words of the schedule from the sixteen before them.
__attribute__((target("sha,ssse3,sse4.1"))) void absorb_in_hardware(State& state, const std::byte* block) {
  const auto [a, b, c, d, e, f, g, h] = std::bit_cast<std::array<int, 8>>(state);
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abef = _mm_set_epi32(a, b, e, f), cdgh = _mm_set_epi32(c, d, g, h), w[4];
  for (std::size_t four = 0; four < 16; ++four) {
    __m128i& next = w[four % 4];
    const __m128i &second = w[(four + 1) % 4], &third = w[(four + 2) % 4], &last = w[(four + 3) % 4];
    if (four < 4) {
      std::memcpy(&next, block + 16 * four, sizeof next);
      next = _mm_shuffle_epi8(next, big_endian);
    } else {
      const __m128i seven_before = _mm_alignr_epi8(last, third, 4);
      next = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(next, second), seven_before), last);
    }
    __m128i constants;
    std::memcpy(&constants, round_constants + 4 * four, sizeof constants);
    const __m128i words = _mm_add_epi32(next, constants);
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_unpackhi_epi64(words, words));
  }
  std::array<std::uint32_t, 4> high{}, low{};
  std::memcpy(high.data(), &abef, sizeof abef);
  std::memcpy(low.data(), &cdgh, sizeof cdgh);
  const State added = {high[3], high[2], low[3], low[2], high[1], high[0], low[1], low[0]};
  for (std::size_t i = 0; i < added.size(); ++i) state[i] += added[i];
}
#endif

}  // namespace

void Sha256::absorb(const std::byte* block) {
#if defined(__x86_64__)
  static const bool has = has_instructions();
  if (in_hardware_ && has) return absorb_in_hardware(state_, block);
#endif
  absorb_in_software(state_, block);
}

void Sha256::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t held = length_ % block_size;
    if (held == 0 && bytes.size() >= block_size) {
      absorb(bytes.data());
      length_ += block_size;
      bytes = bytes.subspan(block_size);
      continue;
    }
    const std::size_t taken = std::min(block_size - held, bytes.size());
    std::memcpy(pending_.data() + held, bytes.data(), taken);
    length_ += taken;
    bytes = bytes.subspan(taken);
    if (held + taken == block_size) absorb(pending_.data());
  }
}

// Pads with a one bit, zeros, and the length in bits as the last 64 bits of a block.
void Sha256::pad() {
  const std::uint64_t bits = length_ * 8;
  const std::byte one{0x80}, zero{0};
  update({&one, 1});
  while (length_ % block_size != block_size - 8) update({&zero, 1});
  std::array<std::byte, 8> tail{};
  for (std::size_t i = 0; i < 8; ++i) tail[i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(tail);
}

std::string Sha256::hex() {
  pad();
  std::string digits;
  for (std::uint32_t word : state_)
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15];
  return digits;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_of_file(int fd, std::string_view name) {
  Sha256 hash;
  std::vector<std::byte> buffer(std::size_t{1} << 18);
  for (off_t offset = 0;;) {
    const ssize_t count = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error(ErrorCode::storage, "cannot read '", name, "': ", std::strerror(errno));
    if (count == 0) return hash.hex();
    hash.update(std::span<const std::byte>(buffer).first(static_cast<std::size_t>(count)));
    offset += count;
  }
}

}  // namespace prun
