// Randomness: published vectors, independence from how a tensor is cut, statistics, permutations.
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace prun {
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

TEST(RandomStream, NormalIsFiniteAtTheEdge) {
  EXPECT_EQ(std::log(1.0 - unit_double(0)), 0.0);
  EXPECT_TRUE(std::isfinite(std::log(1.0 - unit_double(~std::uint64_t{0}))));
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
}  // namespace prun
