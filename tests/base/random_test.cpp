// Randomness: published vectors, independence from how a tensor is cut, statistics, permutations.
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <set>
#include <vector>

namespace prun::random_test {
namespace {

// From the authors' known-answer file (kat_vectors of Random123).
TEST(Philox, GivesThePublishedVectors) {
  constexpr std::uint32_t ones = 0xffffffffu;
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) ==
                PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0}, 7) ==
                PhiloxCounter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}, 7),
            (PhiloxCounter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
}

TEST(RandomStream, LaysOutWordsOfBlocksInOrder) {
  const RandomStream stream(0x299f31d0a4093822u, 0x0370734413198a2eu);
  const std::uint64_t block = 0x05a308d3243f6a88u;
  const PhiloxCounter words =
      philox4x32({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(stream.bits32(4 * block + i), words[i]);
  EXPECT_EQ(stream.bits64(2 * block), std::uint64_t{words[1]} << 32 | words[0]);
  EXPECT_EQ(stream.bits64(2 * block + 1), std::uint64_t{words[3]} << 32 | words[2]);
}

TEST(RandomStream, UniformStaysBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(0xffffffffu), 1.0f);
  EXPECT_EQ(unit_double(0), 0.0);
  EXPECT_LT(unit_double(~std::uint64_t{0}), 1.0);
  EXPECT_EQ(unit_float(0x80000000u), 0.5f);
  EXPECT_EQ(unit_double(std::uint64_t{1} << 62), 0.25);
}

TEST(RandomStream, SeedStreamAndIndexAllMatter) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t stream = 0; stream < 8; ++stream) {
      for (std::uint64_t i = 0; i < 8; ++i) seen.insert(RandomStream(seed, stream).bits64(i));
    }
  }
  EXPECT_EQ(seen.size(), 512u);
  EXPECT_NE(stream_id("wte"), stream_id("wpe"));
  EXPECT_NE(stream_id("wte", 1), stream_id("wte", 2));
  EXPECT_EQ(stream_id("", 0), 0xa8c7f832281a39c5u);  // FNV-1a of eight zero bytes
}

TEST(RandomStream, AnyShardCanBeFilledAlone) {
  const RandomStream stream(42, stream_id("h.0.attn.weight"));
  std::vector<float> whole(1000);
  stream.fill_normal(whole, 0, 0.5, 0.02);
  std::vector<float> uniform(1000);
  stream.fill_uniform(uniform, 0, -1.0f, 1.0f);
  for (std::size_t first = 0; first < 1000; first += 37) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{13}, 1000 - first}) {
      std::vector<float> shard(std::min(count, 1000 - first));
      stream.fill_normal(shard, first, 0.5, 0.02);
      ASSERT_TRUE(std::equal(shard.begin(), shard.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
      stream.fill_uniform(shard, first, -1.0f, 1.0f);
      ASSERT_TRUE(
          std::equal(shard.begin(), shard.end(), uniform.begin() + static_cast<std::ptrdiff_t>(first)));
    }
    ASSERT_EQ(whole[first], static_cast<float>(std::fma(0.02, stream.normal(first), 0.5)));
    ASSERT_EQ(uniform[first], 2.0f * stream.uniform_float(first) - 1.0f);
  }
}

// Whichever instructions a build uses, and wherever its blocks begin and end.
TEST(RandomStream, NormalNumbersHaveTheSameBitsInAllBuilds) {
  constexpr std::uint64_t seed = 77, stream = 0xfeedfacecafebeefu;
  constexpr std::int64_t count = 20'011;  // pairs: neither whole blocks nor whole registers
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 37}) {
    std::vector<float> plain(2 * count);
    for (std::int64_t k = 0; k < count; ++k) {
      double pair[2];
      normal_numbers().front().pair(seed, stream, first + static_cast<std::uint64_t>(k), pair);
      for (int i = 0; i < 2; ++i)
        plain[static_cast<std::size_t>(2 * k + i)] = static_cast<float>(std::fma(0.3, pair[i], -0.1));
    }
    for (const NormalNumbers& build : normal_numbers()) {
      std::vector<float> numbers(2 * count);
      build.pairs(seed, stream, first, count, -0.1, 0.3, numbers.data());
      ASSERT_EQ(std::memcmp(numbers.data(), plain.data(), plain.size() * sizeof(float)), 0) << build.isa;
      for (std::uint64_t k = 0; k < 1000; ++k) {
        double here[2], there[2];
        normal_numbers().front().pair(seed, stream, first + k, here);
        build.pair(seed, stream, first + k, there);
        ASSERT_EQ(std::memcmp(here, there, sizeof here), 0) << build.isa << ", pair " << first + k;
      }
    }
  }
}

// A stream that has these words in its block `block`: rounds are undone one by one.
struct Place {
  std::uint64_t stream, block;
};
Place place_of(PhiloxCounter words, std::uint64_t seed) {
  const auto inverse = [](std::uint32_t odd) {
    std::uint32_t x = odd;
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
  };
  for (std::uint32_t round = 10; round-- > 0;) {
    const std::uint32_t low = static_cast<std::uint32_t>(seed) + round * 0x9E3779B9u;
    const std::uint32_t high = static_cast<std::uint32_t>(seed >> 32) + round * 0xBB67AE85u;
    const std::uint32_t x0 = words[3] * inverse(0xD2511F53u), x2 = words[1] * inverse(0xCD9E8D57u);
    const auto upper = [](std::uint32_t a, std::uint32_t b) {
      return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
    };
    words = {x0, words[0] ^ upper(x2, 0xCD9E8D57u) ^ low, x2, words[2] ^ upper(x0, 0xD2511F53u) ^ high};
  }
  return {std::uint64_t{words[3]} << 32 | words[2], std::uint64_t{words[1]} << 32 | words[0]};
}

TEST(RandomStream, NormalIsRightAtTheEdges) {
  constexpr std::uint32_t ones = 0xffffffffu;
  const double most =
      std::sqrt(106 * std::numbers::ln2);  // of the smallest number that a logarithm is taken of
  const struct {
    PhiloxCounter words;
    double first, second;
  } edges[] = {
      {{0, 0, 0, 0}, 0, 0},
      {{ones, ones, 0, 0}, most, 0},
      {{0, 0, ones, ones}, 0, 0},
      {{ones, ones, 0, 1u << 30}, 0, most},
      {{ones, ones, 0, 1u << 31}, -most, 0},
      {{ones, ones, 0, 3u << 30}, 0, -most},
      {{ones, ones, 0, 1u << 29}, most * std::sqrt(0.5), most * std::sqrt(0.5)},
      {{1u << 11, 0, 0, 0}, 0x1p-26, 0},  // the nearest number to 1
      {{0, 1u << 31, 0, 0}, std::sqrt(2 * std::numbers::ln2), 0},
      {{ones, ones, ones, ones}, most, -most * 2 * std::numbers::pi * 0x1p-53},
  };
  for (const auto& edge : edges) {
    const Place at = place_of(edge.words, 42);
    ASSERT_EQ(philox_block(42, at.stream, at.block), edge.words);
    for (const NormalNumbers& build : normal_numbers()) {
      double pair[2];
      build.pair(42, at.stream, at.block, pair);
      EXPECT_DOUBLE_EQ(pair[0], edge.first) << build.isa;
      EXPECT_DOUBLE_EQ(pair[1], edge.second) << build.isa;
    }
  }
}

// Of the true value: the angle is taken to the nearest quarter exactly, and the rest is done in long double.
TEST(RandomStream, NormalIsWithinTwoUnitsInTheLastPlace) {
  constexpr long double two_pi = 2 * 3.14159265358979323846264338327950288L;
  const RandomStream stream(7, 9);
  double worst = 0;
  for (std::uint64_t k = 0; k < 1'000'000; ++k) {
    const long double radius = std::sqrt(-2 * std::log(1.0L - stream.uniform_double(2 * k)));
    const double turns = stream.uniform_double(2 * k + 1);
    const int quarter = static_cast<int>(std::nearbyint(4 * turns));
    const long double angle = two_pi * (turns - 0.25 * quarter);
    const long double c = std::cos(angle), s = std::sin(angle);
    const long double cosines[] = {c, -s, -c, s}, sines[] = {s, c, -s, -c};
    const long double wanted[] = {radius * cosines[quarter % 4], radius * sines[quarter % 4]};
    for (std::uint64_t i = 0; i < 2; ++i) {
      const double nearest = std::abs(static_cast<double>(wanted[i]));
      const double unit = std::nextafter(nearest, HUGE_VAL) - nearest;
      worst = std::max(worst, static_cast<double>(std::abs(stream.normal(2 * k + i) - wanted[i])) / unit);
    }
  }
  EXPECT_LT(worst, 2.0);
}

TEST(RandomStream, FillUniformNeverReachesTheUpperBound) {
  std::vector<float> values(4096);
  const float low = 1.0f, high = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);  // two values possible
  RandomStream(1, 2).fill_uniform(values, 0, low, high);
  for (const float value : values) ASSERT_TRUE(value >= low && value < high);
}

TEST(RandomStream, UniformHasFlatHistogram) {
  constexpr int bins = 64, count = 1 << 18;
  const RandomStream stream(3, 4);
  std::vector<double> singles(bins), doubles(bins);
  for (std::uint64_t i = 0; i < count; ++i) {
    ++singles[static_cast<std::size_t>(stream.uniform_float(i) * bins)];
    ++doubles[static_cast<std::size_t>(stream.uniform_double(i) * bins)];
  }
  for (const auto& histogram : {singles, doubles}) {
    double chi = 0;
    for (const double n : histogram) chi += (n - count / bins) * (n - count / bins) / (count / bins);
    EXPECT_GT(chi, 30.0);  // 63 degrees of freedom: 30 to 110 holds but one time in ten thousand
    EXPECT_LT(chi, 110.0);
  }
}

TEST(RandomStream, NormalHasTheRightMoments) {
  constexpr int count = 1'000'000;
  const RandomStream stream(123, 456);
  double sum = 0, square = 0, cube = 0, fourth = 0, neighbours = 0, last = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = stream.normal(i);
    sum += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    neighbours += x * last;
    last = x;
    beyond_two += std::abs(x) > 2.0;
  }
  // Tolerances of about five standard errors.
  EXPECT_NEAR(sum / count, 0.0, 0.005);
  EXPECT_NEAR(square / count, 1.0, 0.0071);
  EXPECT_NEAR(cube / count, 0.0, 0.02);
  EXPECT_NEAR(fourth / count, 3.0, 0.05);
  EXPECT_NEAR(neighbours / count, 0.0, 0.005);
  EXPECT_NEAR(static_cast<double>(beyond_two) / count, 0.045500, 0.0011);
}

TEST(Permute, IsABijectionForSmallSizes) {
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permute(i, n, 42, n % 7);
      ASSERT_LT(to, n);
      ASSERT_FALSE(hit[to]) << "n " << n << ", index " << i;
      hit[to] = true;
    }
  }
}

TEST(Permute, IsABijectionForLargerSizes) {
  for (const std::uint64_t n : {std::uint64_t{65'536}, std::uint64_t{65'537}, std::uint64_t{262'145}}) {
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permute(i, n, 7, 1);
      ASSERT_LT(to, n);
      ASSERT_FALSE(hit[to]);
      hit[to] = true;
    }
  }
}

TEST(Permute, StaysInsideHugeSizesWithoutCollisions) {
  for (const std::uint64_t n : {(std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      seen.insert(permute(i, n, 9, 0));
      seen.insert(permute(n - 1 - i, n, 9, 0));
    }
    EXPECT_EQ(seen.size(), 4000u);
    EXPECT_LT(*seen.rbegin(), n);
  }
}

TEST(Permute, SpreadsEachIndexOverAllPlaces) {
  constexpr std::uint64_t n = 10, epochs = 20'000;
  std::vector<double> counts(n * n);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::uint64_t i = 0; i < n; ++i) ++counts[i * n + permute(i, n, 5, epoch)];
  }
  double chi = 0;
  for (const double count : counts) chi += (count - epochs / n) * (count - epochs / n) / (epochs / n);
  EXPECT_LT(chi, 140.0);  // 81 degrees of freedom: above 140 once in twenty thousand
}

TEST(Permute, ReachesEveryOrderOfThree) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    orders.insert({permute(0, 3, 1, epoch), permute(1, 3, 1, epoch), permute(2, 3, 1, epoch)});
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Permute, DependsOnSeedAndEpochAndRefusesIndexOutside) {
  int same_epoch = 0, same_seed = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same_epoch += permute(i, 1000, 1, 0) == permute(i, 1000, 1, 1);
    same_seed += permute(i, 1000, 1, 0) == permute(i, 1000, 2, 0);
  }
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_THROW(permute(5, 5, 0, 0), Error);
  EXPECT_THROW(permute(0, 0, 0, 0), Error);
}

// Resuming relies on these; the numbers come from a second implementation in another language.
TEST(RandomStream, ValuesNeverChange) {
  EXPECT_EQ(stream_id("w", 5), 0x72c52e9222ff8cb3u);
  const RandomStream stream(1234, stream_id("w", 5));
  EXPECT_EQ(stream.bits32(6), 3646154244u);
  EXPECT_EQ(stream.uniform_float(11), 0.43580085039138794f);
  EXPECT_NEAR(stream.normal(7), -0.5918375700324486, 1e-15);
  EXPECT_EQ(permute(17, 1'000'003, 1234, 2), 438'706u);
  EXPECT_EQ(permute((std::uint64_t{1} << 40) + 5, (std::uint64_t{1} << 63) - 25, 1234, 2),
            4349758751317075214u);
}

}  // namespace
}  // namespace prun::random_test
