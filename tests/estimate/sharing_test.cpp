// Bytes that several move at the same time: by hand, and in plans.
#include "estimate/simulate.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "prun/error.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::sharing_test {
namespace {

// By tag, when each ended.
std::map<std::size_t, double> ends_of(Sharing& sharing) {
  std::map<std::size_t, double> ends;
  double before = 0;
  while (const auto ended = sharing.next()) {
    EXPECT_GE(ended->at, before);
    before = ends[ended->tag] = ended->at;
  }
  return ends;
}

using Ends = std::map<std::size_t, double>;

TEST(Sharing, OneAloneTakesItsTime) {
  Sharing sharing;
  const std::size_t link = sharing.add_carrier(2);
  sharing.begin(7, 3, 4, {{link, 2}});
  EXPECT_EQ(ends_of(sharing), (Ends{{7, 7}}));
  EXPECT_FALSE(sharing.next());
}

TEST(Sharing, TwoAtOnceTakeTwiceAsLong) {
  Sharing sharing;
  const std::size_t link = sharing.add_carrier(2);
  sharing.begin(0, 0, 4, {{link, 2}});
  sharing.begin(1, 0, 4, {{link, 2}});
  EXPECT_EQ(ends_of(sharing), (Ends{{0, 8}, {1, 8}}));
}

// The first is alone for two seconds, the second for its last two.
TEST(Sharing, OnlyWhileBothAreThere) {
  Sharing sharing;
  const std::size_t link = sharing.add_carrier(2);
  sharing.begin(0, 0, 4, {{link, 2}});
  sharing.begin(1, 2, 4, {{link, 2}});
  EXPECT_EQ(ends_of(sharing), (Ends{{0, 6}, {1, 8}}));
}

// Of 10, one wants 15 and the other 5: each has half of what it wants, so the one that wants little is held
// up as well.
TEST(Sharing, AllHaveTheSamePartOfWhatTheyWant) {
  Sharing sharing;
  const std::size_t memory = sharing.add_carrier(10);
  sharing.begin(0, 0, 10, {{memory, 15}});
  sharing.begin(1, 0, 5, {{memory, 5}});
  EXPECT_EQ(ends_of(sharing), (Ends{{1, 10}, {0, 17.5}}));
}

TEST(Sharing, WhatFitsTogetherIsNotHeldUp) {
  Sharing sharing;
  const std::size_t memory = sharing.add_carrier(10);
  sharing.begin(0, 0, 10, {{memory, 4}});
  sharing.begin(1, 1, 10, {{memory, 6}});
  EXPECT_EQ(ends_of(sharing), (Ends{{0, 10}, {1, 11}}));
}

// Two copies at half their speed on the link ask for 2 of the memory, so the update has the 8 that it wants.
TEST(Sharing, WhatALinkHoldsUpAsksLessOfTheMemory) {
  Sharing sharing;
  const std::size_t link = sharing.add_carrier(2), memory = sharing.add_carrier(10);
  sharing.begin(0, 0, 4, {{link, 2}, {memory, 2}});
  sharing.begin(1, 0, 4, {{link, 2}, {memory, 2}});
  sharing.begin(2, 0, 10, {{memory, 8}});
  EXPECT_EQ(ends_of(sharing), (Ends{{0, 8}, {1, 8}, {2, 10}}));
}

TEST(Sharing, OthersLikeItCountAsOftenAsTheyAre) {
  Sharing sharing;
  const std::size_t memory = sharing.add_carrier(10);
  sharing.begin(0, 0, 10, {{memory, 8, 2}});
  EXPECT_EQ(ends_of(sharing), (Ends{{0, 16}}));
}

TEST(Sharing, NobodyBeginsInThePast) {
  Sharing sharing;
  const std::size_t link = sharing.add_carrier(1);
  sharing.begin(0, 0, 5, {{link, 1}});
  ASSERT_TRUE(sharing.next());
  EXPECT_THROW(sharing.begin(1, 4, 1, {{link, 1}}), Error);
}

// ---------------------------------------------------------------- in plans

// A kernel's op is its time, and says what it moves.
class MovingCostModel final : public FixedCostModel {
 public:
  Carried carried(const Program&, const Plan&, const PlannedStep& step) override {
    const auto found = moved.find(step.op);
    return found == moved.end() ? Carried{} : found->second;
  }
  double host_bandwidth() override { return bandwidth; }
  double drive_bandwidth() override { return drives; }

  std::map<Id, Carried> moved;
  double bandwidth = 0, drives = 0;
};

const SimulateOptions one_by_one{3, 1};

// Two queues, a call each of so many seconds.
PlanBuilder two_queues(Id first, Id second) {
  PlanBuilder builder;
  builder.kernel(builder.queue("one", false), first);
  builder.kernel(builder.queue("other", false), second);
  return builder;
}

TEST(SharedLinks, TwoCopiesOverOneTakeTwiceAsLong) {
  const PlanBuilder builder = two_queues(4, 4);
  MovingCostModel cost_model;
  cost_model.moved[4] = {0, 8, 0};
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  EXPECT_DOUBLE_EQ(result.step_seconds, 8);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.busy[0], 8);
  EXPECT_DOUBLE_EQ(result.ranks[0].slowed, 4 + 4);
}

// As fast as the faster one: beside it, which asks for all of it, the slower one, which asks for half, has a
// third.
TEST(SharedLinks, AreAsFastAsTheFastestCopy) {
  const PlanBuilder builder = two_queues(4, 6);
  MovingCostModel cost_model;
  cost_model.moved[4] = {0, 16, 0};
  cost_model.moved[6] = {0, 12, 0};
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.busy[0], 6);
  EXPECT_DOUBLE_EQ(result.step_seconds, 6 + 2);
}

TEST(SharedLinks, EachWayHasItsOwn) {
  const PlanBuilder builder = two_queues(4, 5);
  MovingCostModel cost_model;
  cost_model.moved[4] = {0, 8, 0};
  cost_model.moved[5] = {0, 10, 1};
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  EXPECT_DOUBLE_EQ(result.step_seconds, 5);
  EXPECT_DOUBLE_EQ(result.ranks[0].slowed, 0);
}

TEST(SharedMemory, AnUpdateAndACopyShareWhatItCarries) {
  const PlanBuilder builder = two_queues(10, 5);
  MovingCostModel cost_model;
  cost_model.moved[10] = {80, 0, -1};
  cost_model.moved[5] = {25, 25, 0};
  cost_model.bandwidth = 10;
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  // 13 a second are asked for: beside the update the copy takes 6.5 seconds, in which that does half of its
  // bytes, and the rest at 8 a second.
  EXPECT_DOUBLE_EQ(result.step_seconds, 6.5 + 5);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.busy[1], 6.5);
  EXPECT_DOUBLE_EQ(result.ranks[0].host_bytes, 105);
  EXPECT_DOUBLE_EQ(result.ranks[0].slowed, 1.5 + 1.5);
  cost_model.bandwidth = 0;
  EXPECT_DOUBLE_EQ(simulate(std::vector{builder.rank(0)}, cost_model, one_by_one).step_seconds, 10);
}

// Each reads at 8 a second and writes at 8: a rank has both at once, and two share them.
TEST(SharedDrives, RanksOfAHostShareBothWays) {
  const PlanBuilder builder = two_queues(4, 5);
  MovingCostModel cost_model;
  cost_model.moved[4].drives = 32;
  cost_model.moved[5].drives = 40;
  cost_model.drives = 16;
  const std::vector<SimulatedRank> one = {builder.rank(0)}, two = {builder.rank(0), builder.rank(1)};
  EXPECT_DOUBLE_EQ(simulate(one, cost_model, one_by_one).step_seconds, 5);
  SimulateOptions on_hosts = one_by_one;
  on_hosts.ranks_of_host = 2;
  // Both read for 8 s, in which 4 s of each one's writing are done, and have the drive alone for the rest.
  EXPECT_DOUBLE_EQ(simulate(two, cost_model, on_hosts).step_seconds, 8 + 1);
  on_hosts.ranks_of_host = 1;
  EXPECT_DOUBLE_EQ(simulate(two, cost_model, on_hosts).step_seconds, 5);
}

// What is faster than was measured of the memory found caches: alone it takes its time.
TEST(SharedMemory, NobodyIsHeldUpByItself) {
  const PlanBuilder builder = two_queues(10, 1);
  MovingCostModel cost_model;
  cost_model.moved[10] = {800, 0, -1};
  cost_model.bandwidth = 10;
  EXPECT_DOUBLE_EQ(simulate(std::vector{builder.rank(0)}, cost_model, one_by_one).step_seconds, 10);
}

TEST(SharedMemory, IsThatOfAllRanksOfAHost) {
  const PlanBuilder builder = two_queues(10, 1);
  MovingCostModel cost_model;
  cost_model.moved[10] = {80, 0, -1};
  cost_model.bandwidth = 10;
  std::vector<SimulatedRank> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(builder.rank(rank));
  SimulateOptions options = one_by_one;
  for (const auto& [of_host, seconds] : {std::pair{0, 32.0}, {2, 16.0}, {1, 10.0}}) {
    options.ranks_of_host = of_host;
    const Simulation result = simulate(ranks, cost_model, options);
    EXPECT_EQ(result.ranks.size(), 1u);
    EXPECT_DOUBLE_EQ(result.step_seconds, seconds) << of_host;
  }
}

// Ranks of other plans are there as well, each as itself.
TEST(SharedMemory, IsThatOfRanksThatDoOtherThings) {
  const PlanBuilder update = two_queues(10, 1), copy = two_queues(5, 1);
  MovingCostModel cost_model;
  cost_model.moved[10] = {80, 0, -1};
  cost_model.moved[5] = {25, 0, -1};
  cost_model.bandwidth = 10;
  const std::vector<SimulatedRank> ranks = {update.rank(0), copy.rank(1)};
  SimulateOptions options{1, 1};
  EXPECT_DOUBLE_EQ(simulate(ranks, cost_model, options).step_seconds, 6.5 + 5);
  options.ranks_of_host = 1;
  EXPECT_DOUBLE_EQ(simulate(ranks, cost_model, options).step_seconds, 10);
}

// Four ranks that are alike compute on a core each, and copy without one.
TEST(SharedCores, RanksTakeTurnsWhereThereAreTooFew) {
  const PlanBuilder builder = two_queues(10, 1);
  MovingCostModel cost_model;
  std::vector<SimulatedRank> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(builder.rank(rank));
  SimulateOptions options = one_by_one;
  options.cores_of = [](const QueueInfo& queue) { return queue.name == "one" ? 1.0 : 0.0; };
  for (const auto& [cores, of_host, seconds] :
       {std::tuple{0.0, 0, 10.0}, {2.0, 0, 20.0}, {3.0, 0, 40.0 / 3}, {2.0, 2, 10.0}, {8.0, 0, 10.0}}) {
    options.cores_of_host = cores, options.ranks_of_host = of_host;
    EXPECT_DOUBLE_EQ(simulate(ranks, cost_model, options).step_seconds, seconds) << cores << " " << of_host;
  }
}

// The shorter one ends at 10, at half its speed; then the longer one has the core to itself.
TEST(SharedCores, WhoComputesAloneHasAllOfThem) {
  const PlanBuilder longer = two_queues(10, 1), shorter = two_queues(5, 1);
  MovingCostModel cost_model;
  SimulateOptions options{1, 1};
  options.cores_of_host = 1;
  options.cores_of = [](const QueueInfo& queue) { return queue.name == "one" ? 1.0 : 0.0; };
  const Simulation result = simulate(std::vector{longer.rank(0), shorter.rank(1)}, cost_model, options);
  EXPECT_DOUBLE_EQ(result.step_seconds, 15);
  EXPECT_DOUBLE_EQ(result.ranks[0].slowed, 5);
  EXPECT_DOUBLE_EQ(result.ranks[1].slowed, 5);
}

// Calls behind a shared one begin when it has ended, and waits show it.
TEST(SharedMemory, WhoWaitsForWhatIsHeldUpWaitsLonger) {
  PlanBuilder builder;
  const std::int32_t in = builder.queue("in", false), more = builder.queue("more", false),
                     compute = builder.queue("compute", true);
  const Wait fetched = builder.kernel(in, 4);
  builder.kernel(more, 4);
  builder.kernel(compute, 3, {fetched});
  MovingCostModel cost_model;
  cost_model.moved[4] = {0, 8, 0};
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  EXPECT_DOUBLE_EQ(result.step_seconds, 8 + 3);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.waiting[2], 8);
}

}  // namespace
}  // namespace prun::test::sharing_test
