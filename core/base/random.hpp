// Provides counter-based randomness: every number is a pure function of (seed, stream, index), so there is no
// state to save, and a shard can be filled on its own, in any order, on any number of threads.
//
// The bits come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011) and are the same everywhere. So are uniform numbers, permutations, and normal numbers: those
// are a fixed sequence of IEEE operations, within two units in the last place of the true value
// (kernels/random/normal.cpp), and no math library takes part.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "prun/error.hpp"

namespace prun {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox4x32_round(const PhiloxCounter& x, const PhiloxKey& key) {
  const std::uint64_t a = std::uint64_t{0xD2511F53u} * x[0];
  const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * x[2];
  return {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(a)};
}

// Is a bijection of the counter for each key.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key, int rounds = 10) {
  for (int round = 0; round < rounds; ++round) {
    counter = philox4x32_round(counter, key);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Returns the block of four words at position `block` of a stream. Kernels that draw their own numbers use
// the same layout, so that they agree with RandomStream.
constexpr PhiloxCounter philox_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({low(block), high(block), low(stream), high(stream)}, {low(seed), high(seed)});
}

// Returns a number in [0, 1) from the upper 24 bits of a word, so that nothing rounds up to 1.
constexpr float unit_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
// Returns a number in [0, 1) from the upper 53 bits.
constexpr double unit_double(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Computes FNV-1a of a name.
constexpr std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Returns a stream number for a name (such as that of a parameter) and a number (such as the step): FNV-1a
// over the name and the eight bytes of `salt`.
constexpr std::uint64_t stream_id(std::string_view name, std::uint64_t salt = 0) {
  std::uint64_t hash = name_hash(name);
  for (int shift = 0; shift < 64; shift += 8)
    hash = (hash ^ static_cast<std::uint8_t>(salt >> shift)) * 0x100000001b3u;
  return hash;
}

// Represents an endless sequence of which any element can be computed directly. The functions use the same
// bits: use one stream for one purpose.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  constexpr std::uint32_t bits32(std::uint64_t index) const { return block(index / 4)[index % 4]; }

  constexpr std::uint64_t bits64(std::uint64_t index) const { return pair(block(index / 2), index % 2); }

  constexpr float uniform_float(std::uint64_t index) const { return unit_float(bits32(index)); }
  constexpr double uniform_double(std::uint64_t index) const { return unit_double(bits64(index)); }

  // Returns a number of mean 0 and variance 1. Elements 2k and 2k+1 are the two results of one Box-Muller
  // step.
  double normal(std::uint64_t index) const;

  // Sets out[k] = mean + deviation * normal(first + k) by a fused multiply-add, rounded once to float.
  void fill_normal(std::span<float> out, std::uint64_t first, double mean, double deviation) const;

  // Sets out[k] = uniform_float(first + k) scaled to [low, high).
  void fill_uniform(std::span<float> out, std::uint64_t first, float low, float high) const {
    const float below_high = std::nextafter(high, low);
    PhiloxCounter words{};
    for (std::size_t k = 0; k < out.size(); ++k) {
      const std::uint64_t index = first + k;
      if (k == 0 || index % 4 == 0) words = block(index / 4);
      const double unit = unit_float(words[index % 4]);
      const auto value = static_cast<float>(std::fma(double{high} - double{low}, unit, double{low}));
      out[k] = value < high ? value : below_high;
    }
  }

 private:
  constexpr PhiloxCounter block(std::uint64_t number) const { return philox_block(seed_, stream_, number); }

  static constexpr std::uint64_t pair(const PhiloxCounter& words, std::uint64_t which) {
    return std::uint64_t{words[2 * which + 1]} << 32 | words[2 * which];
  }

  std::uint64_t seed_;
  std::uint64_t stream_;
};

// Draws normal numbers, built for one instruction set. All builds give the same bits.
struct NormalNumbers {
  std::string_view isa;
  // Draws both numbers of a pair.
  void (*pair)(std::uint64_t seed, std::uint64_t stream, std::uint64_t number, double* out);
  // Draws 2 * count numbers from pair `first` on, with mean and deviation.
  void (*pairs)(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::int64_t count,
                double mean, double deviation, float* out);
};
// Lists those builds that this machine can run, the best last.
std::vector<NormalNumbers> normal_numbers();

namespace detail {

// Runs one pass of an eight-round Feistel network over numbers of `bits` bits, split into two halves.
constexpr std::uint64_t feistel(std::uint64_t value, int bits, std::uint64_t seed, std::uint64_t epoch) {
  const int low_bits = bits / 2;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << (bits - low_bits)) - 1;
  std::uint64_t low = value & low_mask;
  std::uint64_t high = value >> low_bits;
  for (std::uint64_t round = 0; round < 8; ++round) {
    const bool change_high = round % 2 == 0;
    const std::uint64_t half = change_high ? low : high;
    const std::uint64_t mixed = philox_block(seed, epoch, round << 32 | half)[0];
    if (change_high)
      high ^= mixed & high_mask;
    else
      low ^= mixed & low_mask;
  }
  return high << low_bits | low;
}

}  // namespace detail

// Returns where `index` goes in the shuffle of [0, n) number `epoch`: a bijection of [0, n) for each (seed,
// epoch), with nothing stored. The Feistel network permutes the next power of two; a result outside of [0, n)
// goes through it again (cycle walking) until it is inside, fewer than two passes on average.
constexpr std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t seed,
                                std::uint64_t epoch) {
  PRUN_CHECK(index < n, "index ", index, " of a permutation of ", n);
  // Keeps the shuffle apart from the numbers of a RandomStream with the same seed.
  constexpr std::uint64_t domain = 0x7065726d75746521u;
  const int bits = std::bit_width(n - 1);
  if (bits == 0) return 0;
  do {
    index = detail::feistel(index, bits, seed ^ domain, epoch);
  } while (index >= n);
  return index;
}

}  // namespace prun
