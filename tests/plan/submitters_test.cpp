// How submitters are held up, who gets a place, and what is said of a deadlock.
#include "plan/proof/deadlock.hpp"

#include <gtest/gtest.h>

#include "support/plan_builder.hpp"

namespace prun::test::submitters_test {
namespace {

using Kind = CommKind;

// A rank's queues as limits leave them.
struct Submitted {
  Submitted(const SimulatedRank& rank, const QueueLimits& all, std::int64_t steps = 1)
      : ranks{rank},
        classes(ranks),
        lanes(classes, steps),
        submitters(classes, lanes, {[all](const QueueInfo&) { return all; }}) {}

  // The position of the call that the submitter holds; -1: none is left.
  std::int32_t held() const {
    const auto held = submitters.held(0);
    return held ? held->call->position : -1;
  }
  std::string deadlock() const { return deadlock_text(classes, lanes, channels, &submitters); }

  const std::vector<SimulatedRank> ranks;
  const RankClasses classes;
  Lanes lanes;
  Channels channels{classes, lanes};
  Submitters submitters;
};

// A call is two pieces: its launches, and its counter.
PlanBuilder three_kernels() {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true);
  for (int call = 0; call < 3; ++call) builder.kernel(compute, 1);
  return builder;
}

TEST(Submitters, AreHeldByAQueueThatIsFull) {
  const PlanBuilder builder = three_kernels();
  Submitted submitted(builder.rank(0), {true, 3, 0, ""});
  submitted.submitters.submit(0);
  EXPECT_EQ(submitted.held(), 1);
  ASSERT_TRUE(submitted.submitters.next_piece(0));
  submitted.submitters.pass_piece(0);
  EXPECT_EQ(submitted.held(), 2);
  ASSERT_TRUE(submitted.submitters.next_piece(0));
  submitted.submitters.pass_piece(0);
  EXPECT_FALSE(submitted.submitters.next_piece(0)) << "the call is over";
  EXPECT_EQ(submitted.held(), 2);
  EXPECT_FALSE(submitted.submitters.is_empty(0));
}

TEST(Submitters, HandOverAllStepsWhereThereIsRoom) {
  const PlanBuilder builder = three_kernels();
  Submitted submitted(builder.rank(0), {true, 0, 0, ""}, 2);
  EXPECT_EQ(submitted.held(), 0);
  submitted.submitters.submit(0);
  EXPECT_EQ(submitted.held(), -1);
  for (int call = 0; call < 6; ++call, submitted.lanes[0].end_call())
    while (submitted.submitters.next_piece(0)) {
      EXPECT_FALSE(submitted.submitters.is_empty(0));
      submitted.submitters.pass_piece(0);
    }
  EXPECT_TRUE(submitted.submitters.is_empty(0));
}

TEST(Submitters, LeaveQueuesWithThreadsOfTheirOwnAlone) {
  const PlanBuilder builder = three_kernels();
  Submitted submitted(builder.rank(0), {false, 1, 1, ""});
  submitted.submitters.submit(0);
  EXPECT_FALSE(submitted.submitters.submits(0));
  EXPECT_EQ(submitted.held(), -1);
  EXPECT_TRUE(submitted.submitters.is_empty(0));
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
  Submitted submitted(three.rank(), {true, 0, 2, "nccl"});
  submitted.submitters.submit(0);
  Places& places = submitted.submitters.places();
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
    Submitted submitted(three.rank(), {true, 0, most, "nccl"});
    submitted.submitters.submit(0);
    for (const std::size_t lane : {2, 1, 0}) {
      EXPECT_FALSE(submitted.submitters.places().compete(lane));
      EXPECT_TRUE(submitted.submitters.places().enter(lane));
    }
  }
}

TEST(DeadlockText, NameSubmittersAndQueues) {
  PlanBuilder builder = three_kernels();
  builder.kernel(builder.queue("copy", false), 1, {{0, 2, 0}});
  Submitted submitted(builder.rank(7), {true, 2, 0, ""});
  submitted.submitters.submit(0);
  ASSERT_TRUE(submitted.submitters.next_piece(0));
  const std::string text = submitted.deadlock();
  EXPECT_NE(text.find("\n  rank 7, the submitter, holds call 1 ("), std::string::npos) << text;
  EXPECT_NE(text.find(") for queue compute, which is full with 2"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  rank 7, queue compute, call 0 ("), std::string::npos) << text;
  EXPECT_EQ(text.find("queue copy"), std::string::npos) << "it was handed over nothing: " << text;
}

TEST(DeadlockText, TheFirstEightAreNamedAndTheOthersCounted) {
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
}  // namespace prun::test::submitters_test
