// Halves of a float: every bit comes back, and the upper one is the float's rounding.
#include "prun/split_master.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace prun::split_master_test {
namespace {

float joined(float value) { return joined_halves(rounded_half(value), low_half(value)); }
float rounded(float value) { return std::bit_cast<float>(std::uint32_t{rounded_half(value)} << 16); }

TEST(SplitMaster, EveryFloatComesBack) {
  const std::uint64_t stride = std::getenv("PRUN_LONG") ? 1 : 251;  // coprime to what the halves have
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += stride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    wrong += std::bit_cast<std::uint32_t>(joined(value)) != master_bits(value);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(SplitMaster, AtEveryUpperHalfTheEdgesOfTheLowerOneComeBack) {
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      if (std::isnan(value)) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(joined(value)), high << 16 | low);
      if (std::isinf(rounded(value))) continue;
      // No bf16 is nearer.
      ASSERT_EQ(std::abs(static_cast<double>(bf16(value)) - static_cast<double>(value)),
                std::abs(static_cast<double>(rounded(value)) - static_cast<double>(value)))
          << value;
    }
}

TEST(SplitMaster, BeyondTheLargestItIsInfiniteAndStillComesBack) {
  constexpr float most = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded(most), infinity);
  EXPECT_EQ(rounded(-most), -infinity);
  EXPECT_EQ(joined(most), most);
  EXPECT_EQ(joined(-most), -most);
  EXPECT_EQ(joined(-infinity), -infinity);
  EXPECT_TRUE(std::signbit(joined(-0.0f)));
}

TEST(SplitMaster, NotANumberStaysThatWhicheverItIs) {
  for (std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffc00000u, 0xffffffffu}) {
    const auto value = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(rounded(value)));
    EXPECT_TRUE(std::isnan(joined(value)));
  }
}

}  // namespace
}  // namespace prun::split_master_test
