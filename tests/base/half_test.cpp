// bf16 and f16 against their definitions: the nearest number of the format, ties to the even one.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "prun/types.hpp"

namespace prun::half_test {
namespace {

struct Format {
  int exponent_bits, fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int largest_exponent() const { return (1 << exponent_bits) - 1; }
};
constexpr Format bf16_format{8, 7}, f16_format{5, 10};

// What 16 bits stand for, by IEEE 754's words.
double meaning(const Format& format, std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> format.fraction_bits) & format.largest_exponent();
  const int fraction = static_cast<int>(bits & ((1u << format.fraction_bits) - 1));
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1, unit = std::ldexp(1.0, -format.fraction_bits);
  if (exponent == format.largest_exponent())
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * fraction * unit * std::ldexp(1.0, 1 - format.bias());
  return sign * (1 + fraction * unit) * std::ldexp(1.0, exponent - format.bias());
}

// Of a number that is not NaN, the bits of the nearest one, found by search: neighbours in size are
// neighbours in bits, and infinity stands where the next number would.
std::uint16_t nearest(const Format& format, double x) {
  const auto infinite = static_cast<std::uint32_t>(format.largest_exponent()) << format.fraction_bits;
  const double size = std::abs(x), beyond = std::ldexp(1.0, format.largest_exponent() - format.bias());
  const auto size_of = [&](std::uint32_t bits) { return bits == infinite ? beyond : meaning(format, bits); };
  std::uint32_t below = 0, above = infinite;
  while (above - below > 1) {
    const std::uint32_t middle = (above + below) / 2;
    (size_of(middle) <= size ? below : above) = middle;
  }
  const double down = size - size_of(below), up = size_of(above) - size;
  const bool upwards = down > up || (down == up && below % 2 != 0);
  const std::uint32_t sign = std::signbit(x) ? 0x8000u : 0;
  return static_cast<std::uint16_t>(sign | (std::isinf(x) || upwards ? above : below));
}

template <class Half>
Half of_bits(std::uint32_t bits) {
  Half half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

template <class Half>
void expect_rounded(const Format& format, float x) {
  const Half got(x);
  if (std::isnan(x))
    EXPECT_TRUE(std::isnan(static_cast<float>(got)));
  else
    ASSERT_EQ(got.bits, nearest(format, static_cast<double>(x))) << x;
}

// The number itself, what lies halfway to the next one, and what lies just beside that.
template <class Half>
void expect_format(const Format& format) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<float>(of_bits<Half>(bits));
    const double want = meaning(format, bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(x)) << bits;
      expect_rounded<Half>(format, x);
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), want) << bits;
    ASSERT_EQ(std::signbit(x), (bits & 0x8000u) != 0);
    ASSERT_EQ(Half(x).bits, bits);
    const double next = meaning(format, bits + 1);
    if (!std::isfinite(want) || !std::isfinite(next)) continue;
    const auto between = static_cast<float>((want + next) / 2);
    for (const float near :
         {between, std::nextafter(between, 0.0f), std::nextafter(between, want < 0 ? -1e38f : 1e38f)})
      expect_rounded<Half>(format, near);
  }
}

TEST(Halves, F16IsTheNearestNumberOfItsFormat) { expect_format<f16>(f16_format); }
TEST(Halves, Bf16IsTheNearestNumberOfItsFormat) { expect_format<bf16>(bf16_format); }

TEST(Halves, EveryBf16BecomesTheNearestF16AndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    expect_rounded<f16>(f16_format, static_cast<float>(of_bits<bf16>(bits)));
    expect_rounded<bf16>(bf16_format, static_cast<float>(of_bits<f16>(bits)));
  }
}

TEST(Halves, F16OverflowsWhereTheNextNumberWouldBeNearer) {
  EXPECT_EQ(f16(65504.0f).bits, 0x7bffu);
  EXPECT_EQ(f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bffu);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(f16(-65520.0f).bits, 0xfc00u);
  EXPECT_EQ(f16(std::numeric_limits<float>::max()).bits, 0x7c00u);
  EXPECT_EQ(f16(std::numeric_limits<float>::denorm_min()).bits, 0u);
  EXPECT_EQ(f16(0x1p-25f).bits, 0u);
  EXPECT_EQ(f16(std::nextafter(0x1p-25f, 1.0f)).bits, 1u);
}

}  // namespace
}  // namespace prun::half_test
