#include "placement/pack_whole.hpp"

#include <gtest/gtest.h>

namespace prun::dealt_loads_test {
namespace {

TEST(DealtLoads, BeginsWhereTheFullestRankHasLeast) {
  std::vector<double> loads = {3, 0, 0, 3};
  EXPECT_EQ(deal(loads, 2, 2), 1u);
  EXPECT_EQ(loads, (std::vector<double>{3, 2, 2, 3}));
}

TEST(DealtLoads, GoesRoundWhereLayersAreMoreThanRanks) {
  std::vector<double> loads = {0, 1, 0};
  EXPECT_EQ(deal(loads, 4, 1), 0u);  // the first of those that leave the fullest with two
  EXPECT_EQ(loads, (std::vector<double>{2, 2, 1}));
}

TEST(DealtLoads, TakesTheFirstOfRanksThatAreAlike) {
  std::vector<double> loads(4, 0);
  EXPECT_EQ(deal(loads, 1, 5), 0u);
  EXPECT_EQ(deal(loads, 1, 5), 1u);
  EXPECT_EQ(loads, (std::vector<double>{5, 5, 0, 0}));
}

}  // namespace
}  // namespace prun::dealt_loads_test
