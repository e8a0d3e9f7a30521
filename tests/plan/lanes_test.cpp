// How far queues have come, and whose turn it is.
#include "plan/proof/lanes.hpp"

#include <gtest/gtest.h>

#include "support/plan_builder.hpp"

namespace prun::test::lanes_test {
namespace {

std::vector<std::size_t> awake(Lanes& lanes) {
  std::vector<std::size_t> order;
  while (const auto lane = lanes.next_awake()) order.push_back(*lane);
  return order;
}

// Two queues of a call each, of two ranks that cannot be told apart.
struct TwoQueues {
  TwoQueues() {
    const Wait computed = builder.kernel(builder.queue("compute", true), 1);
    builder.kernel(builder.queue("copy", false), 1, {computed, {0, 0, 1}});
  }

  PlanBuilder builder;
  const std::vector<SimulatedRank> ranks = {builder.rank(0), builder.rank(1)};
  const RankClasses classes{ranks};
};

TEST(Lanes, AreThoseOfOneRankOfEachClass) {
  const TwoQueues two;
  EXPECT_EQ(two.classes.count(), 1u);
  EXPECT_EQ(two.classes.size(0), 2);
  EXPECT_EQ(Lanes(two.classes, 1).count(), 2u);
}

TEST(Lanes, HaveTheirTurnsOnceEachInTheOrderInWhichTheyWereWoken) {
  const TwoQueues two;
  Lanes lanes(two.classes, 1);
  EXPECT_EQ(awake(lanes), (std::vector<std::size_t>{}));
  lanes.wake(1);
  lanes.wake_rank(0);
  EXPECT_EQ(awake(lanes), (std::vector<std::size_t>{1, 0}));
  lanes.wake(1);
  EXPECT_EQ(awake(lanes), (std::vector<std::size_t>{1}));
}

TEST(Lanes, AreUnfinishedUntilTheLastStep) {
  TwoQueues two;
  two.builder.queue("idle", false);
  const std::vector<SimulatedRank> ranks = {two.builder.rank(0)};
  const RankClasses classes(ranks);
  Lanes lanes(classes, 2);
  EXPECT_FALSE(lanes.is_unfinished(lanes[2]));
  for (const std::int64_t step : {0, 1}) {
    EXPECT_TRUE(lanes.is_unfinished(lanes[0]));
    EXPECT_EQ(lanes[0].step(), step);
    lanes[0].end_call();
  }
  EXPECT_FALSE(lanes.is_unfinished(lanes[0]));
}

TEST(Lanes, WaitForCallsOfTheirStepAndOfThoseBefore) {
  const TwoQueues two;
  Lanes lanes(two.classes, 2);
  const Wait now = {0, 0, 0}, before = {0, 0, 1};
  EXPECT_FALSE(lanes.is_over(lanes[1], now));
  EXPECT_TRUE(lanes.is_over(lanes[1], before)) << "what lies before the first step";
  lanes[0].end_call();
  EXPECT_TRUE(lanes.is_over(lanes[1], now));
  lanes[1].end_call();
  EXPECT_FALSE(lanes.is_over(lanes[1], now));
  EXPECT_TRUE(lanes.is_over(lanes[1], before));
}

}  // namespace
}  // namespace prun::test::lanes_test
