// How feeders are held up, who gets a place, and what is said of a deadlock.
#include "plan/proof/deadlock.hpp"

#include <gtest/gtest.h>

#include "support/plan_builder.hpp"

namespace prun::test::feeders_test {
namespace {

using Kind = CommKind;

// A rank's queues as limits leave them.
struct Fed {
  Fed(const SimulatedRank& rank, const QueueLimits& all, std::int64_t steps = 1)
      : ranks{rank},
        classes(ranks),
        lanes(classes, steps),
        feeders(classes, lanes, {[all](const QueueInfo&) { return all; }}) {}

  // The position of the call that the feeder holds; -1: none is left.
  std::int32_t held() const {
    const auto held = feeders.held(0);
    return held ? held->call->position : -1;
  }
  std::string deadlock() const { return deadlock_text(classes, lanes, channels, &feeders); }

  const std::vector<SimulatedRank> ranks;
  const RankClasses classes;
  Lanes lanes;
  Channels channels{classes, lanes};
  Feeders feeders;
};

// A call is two pieces: its launches, and its counter.
PlanBuilder three_kernels() {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true);
  for (int call = 0; call < 3; ++call) builder.kernel(compute, 1);
  return builder;
}

TEST(Feeders, AreHeldByAQueueThatIsFull) {
  const PlanBuilder builder = three_kernels();
  Fed fed(builder.rank(0), {true, 3, 0, ""});
  fed.feeders.feed(0);
  EXPECT_EQ(fed.held(), 1);
  ASSERT_TRUE(fed.feeders.next_piece(0));
  fed.feeders.pass_piece(0);
  EXPECT_EQ(fed.held(), 2);
  ASSERT_TRUE(fed.feeders.next_piece(0));
  fed.feeders.pass_piece(0);
  EXPECT_FALSE(fed.feeders.next_piece(0)) << "the call is over";
  EXPECT_EQ(fed.held(), 2);
  EXPECT_FALSE(fed.feeders.is_empty(0));
}

TEST(Feeders, HandOverAllStepsWhereThereIsRoom) {
  const PlanBuilder builder = three_kernels();
  Fed fed(builder.rank(0), {true, 0, 0, ""}, 2);
  EXPECT_EQ(fed.held(), 0);
  fed.feeders.feed(0);
  EXPECT_EQ(fed.held(), -1);
  for (int call = 0; call < 6; ++call, fed.lanes[0].end_call())
    while (fed.feeders.next_piece(0)) {
      EXPECT_FALSE(fed.feeders.is_empty(0));
      fed.feeders.pass_piece(0);
    }
  EXPECT_TRUE(fed.feeders.is_empty(0));
}

TEST(Feeders, LeaveQueuesWithThreadsOfTheirOwnAlone) {
  const PlanBuilder builder = three_kernels();
  Fed fed(builder.rank(0), {false, 1, 1, ""});
  fed.feeders.feed(0);
  EXPECT_FALSE(fed.feeders.feeds(0));
  EXPECT_EQ(fed.held(), -1);
  EXPECT_TRUE(fed.feeders.is_empty(0));
}

// Three queues that exchange once each.
struct ThreeExchanges {
  ThreeExchanges() {
    for (const char* name : {"a", "b", "c"})
      builder.exchange(builder.queue(name, false, 0), Kind::all_reduce, 1);
  }
  SimulatedRank rank() const { return builder.rank(0, {alone, alone, alone}); }

  PlanBuilder builder;
  const Group alone = group({0});
};

TEST(Places, AreTakenInTheOrderOfThePlanSoManyAtATime) {
  const ThreeExchanges three;
  Fed fed(three.rank(), {true, 0, 2, "nccl"});
  fed.feeders.feed(0);
  Places& places = fed.feeders.places();
  EXPECT_TRUE(places.compete(0));
  EXPECT_FALSE(places.enter(1)) << "before the first one";
  EXPECT_TRUE(places.enter(0));
  EXPECT_TRUE(places.enter(0)) << "it is in";
  EXPECT_TRUE(places.enter(1));
  EXPECT_TRUE(places.all_taken(2));
  EXPECT_FALSE(places.enter(2));
  places.leave(1);
  EXPECT_TRUE(places.enter(2));
}

TEST(Places, AreNoMatterWhereEachQueueHasOne) {
  const ThreeExchanges three;
  for (const std::int64_t most : {0, 3}) {
    Fed fed(three.rank(), {true, 0, most, "nccl"});
    fed.feeders.feed(0);
    for (const std::size_t lane : {2, 1, 0}) {
      EXPECT_FALSE(fed.feeders.places().compete(lane));
      EXPECT_TRUE(fed.feeders.places().enter(lane));
    }
  }
}

TEST(Deadlocks, AreToldOfFeedersAndOfQueues) {
  PlanBuilder builder = three_kernels();
  builder.kernel(builder.queue("copy", false), 1, {{0, 2, 0}});
  Fed fed(builder.rank(7), {true, 2, 0, ""});
  fed.feeders.feed(0);
  ASSERT_TRUE(fed.feeders.next_piece(0));
  const std::string text = fed.deadlock();
  EXPECT_NE(text.find("\n  rank 7, the feeder, holds call 1 ("), std::string::npos) << text;
  EXPECT_NE(text.find(") for queue compute, which is full with 2"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  rank 7, queue compute, call 0 ("), std::string::npos) << text;
  EXPECT_EQ(text.find("queue copy"), std::string::npos) << "it was handed over nothing: " << text;
}

TEST(Deadlocks, TheFirstEightAreNamedAndTheOthersCounted) {
  PlanBuilder builder;
  for (int queue = 0; queue < 11; ++queue)
    builder.kernel(builder.queue("q" + std::to_string(queue), false), 1, {{(queue + 1) % 11, 0, 0}});
  const std::vector<SimulatedRank> ranks = {builder.rank(0)};
  const RankClasses classes(ranks);
  Lanes lanes(classes, 1);
  const Channels channels(classes, lanes);
  const std::string text = deadlock_text(classes, lanes, channels);
  EXPECT_NE(text.find("rank 0, queue q7,"), std::string::npos) << text;
  EXPECT_NE(text.find("of step 0 waits for queue q8, call 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 0, queue q8,"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 13), "\n  and 3 more") << text;
}

}  // namespace
}  // namespace prun::test::feeders_test
