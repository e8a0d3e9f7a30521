#include "meter_window.hpp"

#include <gtest/gtest.h>

namespace prun::cuda {
namespace {

TEST(MeterWindow, NothingIsKnownOfLessThanTwoSamples) {
  MeterWindow window(3);
  EXPECT_EQ(window.means().watts, 0);
  window.add({1, 100, 1500});
  EXPECT_EQ(window.means().watts, 0);
}

TEST(MeterWindow, MeansAreOfTheSamplesThatAreLeft) {
  MeterWindow window(3);
  window.add({1, 100, 900});
  window.add({2, 800, 1500});
  window.add({2.5, 1150, 1600});
  window.add({3, 1400, 1700});  // the first one falls out
  EXPECT_DOUBLE_EQ(window.means().watts, 600);
  EXPECT_DOUBLE_EQ(window.means().clock_mhz, 1600);
}

// A driver that is started anew counts from nothing.
TEST(MeterWindow, ACounterThatFallsSaysNothing) {
  MeterWindow window(3);
  window.add({1, 500, 1500});
  window.add({2, 100, 1500});
  EXPECT_EQ(window.means().watts, 0);
}

}  // namespace
}  // namespace prun::cuda
