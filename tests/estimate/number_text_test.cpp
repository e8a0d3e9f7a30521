// Numbers that people read.
#include "estimate/number_text.hpp"

#include <gtest/gtest.h>

namespace prun::test {
namespace {

TEST(NumberText, TimesHaveThreeDigitsAndTheUnitThatFits) {
  EXPECT_EQ(time_text(0), "0 ms");
  EXPECT_EQ(time_text(9.7e-6), "9.7 us");
  EXPECT_EQ(time_text(0.0123456), "12.3 ms");
  EXPECT_EQ(time_text(0.9996), "1000 ms");
  EXPECT_EQ(time_text(4), "4 s");
  EXPECT_EQ(time_text(1398), "23.3 minutes");
  EXPECT_EQ(time_text(5.21 * 3600), "5.21 hours");
  EXPECT_EQ(time_text(86400.0 * 30), "30 days");
}

TEST(NumberText, ATimeThatIsLessCertainHasTwo) {
  EXPECT_EQ(time_text(0.2246, 2), "220 ms");
  EXPECT_EQ(time_text(0.0996, 2), "100 ms");
  EXPECT_EQ(time_text(1398, 2), "23 minutes");
}

TEST(NumberText, RatesHaveThreeDigitsOrCommas) {
  EXPECT_EQ(rate_text(0), "0");
  EXPECT_EQ(rate_text(0.3142), "0.314");
  EXPECT_EQ(rate_text(99.96), "100");
  EXPECT_EQ(rate_text(8245.4), "8,245");
  EXPECT_EQ(rate_text(1234567), "1,234,567");
}

TEST(NumberText, CountsHaveAUnit) {
  EXPECT_EQ(count_text(812), "812");
  EXPECT_EQ(count_text(1239040), "1.24 M");
}

}  // namespace
}  // namespace prun::test
