#include "convert/shell_words.hpp"

#include <gtest/gtest.h>

#include <string>

namespace prun::convert {
namespace {

TEST(WholeSum, TakesProductsBeforeSums) {
  WholeSum sum;
  EXPECT_TRUE(sum.add("2", '+'));
  EXPECT_TRUE(sum.add("3", '*'));
  EXPECT_TRUE(sum.add("4", '-'));
  EXPECT_TRUE(sum.add("9", '/'));
  EXPECT_TRUE(sum.add("2", '+'));
  EXPECT_FALSE(sum.too_large());
  EXPECT_EQ(sum.value(), 2 + 3 * 4 - 9 / 2);
}

TEST(WholeSum, RefusesWhatIsNoNumberAndDivisionByZero) {
  EXPECT_FALSE(WholeSum().add("two", '+'));
  EXPECT_FALSE(WholeSum().add("2", '%'));
  WholeSum sum;
  EXPECT_TRUE(sum.add("2", '/'));
  EXPECT_FALSE(sum.add("0", '+'));
}

TEST(WholeSum, SaysThatTheSmallestNumberHasNoOpposite) {
  const std::string smallest = "-9223372036854775808";
  WholeSum divided;
  EXPECT_TRUE(divided.add(smallest, '/'));
  EXPECT_TRUE(divided.add("-1", '+'));
  EXPECT_TRUE(divided.too_large());
  WholeSum taken;
  EXPECT_TRUE(taken.add("0", '-'));
  EXPECT_TRUE(taken.add(smallest, '+'));
  EXPECT_TRUE(taken.too_large());
}

}  // namespace
}  // namespace prun::convert
