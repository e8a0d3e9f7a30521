// Numbers of bytes near the largest one.
#include "base/narrow.hpp"

#include <gtest/gtest.h>

namespace prun::test::saturated_test {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Saturated, AFileSystemWithoutABoundHasTheLargestNumberLeft) {
  struct statvfs facts {};
  facts.f_frsize = 4096;
  for (const auto& [blocks, bytes] : std::initializer_list<std::pair<std::uint64_t, std::int64_t>>{
           {0, 0},
           {3, 12288},
           {(std::uint64_t{1} << 51) - 1, largest - 4095},
           {std::uint64_t{1} << 51, largest},
           {std::uint64_t{1} << 52, largest},
           {~std::uint64_t{0}, largest}}) {
    facts.f_bavail = blocks;
    EXPECT_EQ(bytes_left(facts), bytes) << blocks;
  }
}

TEST(Saturated, SumsAndProductsStopThere) {
  EXPECT_EQ(saturated_sum(largest - 2, 2), largest);
  EXPECT_EQ(saturated_sum(largest - 2, 3), largest);
  EXPECT_EQ(saturated_product(1 << 20, 3), 3 << 20);
  EXPECT_EQ(saturated_product(largest, 2), largest);
}

}  // namespace
}  // namespace prun::test::saturated_test
