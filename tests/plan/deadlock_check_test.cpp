// What queues of finite depth and exchanges that compete for places make stand still is found, with the least
// that would do; and what they do not is let through.
#include "plan/proof/deadlock.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "support/assembly_fixture.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::deadlock_check_test {
namespace {

using Kind = CommKind;

std::string verdict(const std::vector<SimulatedRank>& ranks, const QueueLimits& limits, bool stamps = false) {
  try {
    check_no_deadlock(ranks, {[&](const QueueInfo&) { return limits; }, stamps});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

QueueLimits depth(std::int64_t depth) { return {true, depth, 0, ""}; }
QueueLimits resident(std::int64_t resident) { return {true, 0, resident, "nccl"}; }

// Rank 0 posts so many sends before the receive that rank 1 answers first: each a piece, and its counter.
std::vector<SimulatedRank> posted_ahead(PlanBuilder& first, PlanBuilder& second, int sends) {
  const Group both = group({0, 1});
  for (auto& [builder, peer] : {std::pair<PlanBuilder*, int>{&first, 1}, {&second, 0}}) {
    const std::int32_t there = builder->queue("there", false, 0), back = builder->queue("back", false, 0);
    if (peer == 0) builder->exchange(back, Kind::send, 1, {}, peer);
    for (int i = 0; i < sends; ++i) builder->exchange(there, peer ? Kind::send : Kind::recv, 1, {}, peer);
    if (peer == 1) builder->exchange(back, Kind::recv, 1, {}, peer);
  }
  // Rank 1 takes what rank 0 sends once its own has arrived.
  for (Call& call : second.plan().calls)
    if (call.queue == 0 && call.position == 0) call.waits = {{1, 0, 0}};
  return {first.rank(0, {both, both}), second.rank(1, {both, both})};
}

TEST(DeadlockCheck, ASubmitterHeldByAFullQueueIsFoundAndTheLeastDepthTold) {
  PlanBuilder first, second;
  const std::vector<SimulatedRank> ranks = posted_ahead(first, second, 3);
  EXPECT_EQ(verdict(ranks, depth(0)), "");
  EXPECT_EQ(verdict(ranks, depth(6)), "");
  const std::string why = verdict(ranks, depth(2));
  EXPECT_NE(why.find("take 2 pieces of work and must take 6, or this layout stands still"), std::string::npos)
      << why;
  EXPECT_NE(
      why.find("rank 0, the submitter, holds call 1 (send there 1 B) for queue there, which is full with 2"),
      std::string::npos)
      << why;
  EXPECT_NE(why.find("rank 0, queue there, call 0 (send there 1 B) of step 0 waits for rank 1"),
            std::string::npos)
      << why;
  EXPECT_NE(verdict(ranks, depth(5)), "");
}

// Blocking queues have threads of their own: none is held up by another.
TEST(DeadlockCheck, BlockingQueuesHaveNoDepth) {
  PlanBuilder first, second;
  EXPECT_EQ(verdict(posted_ahead(first, second, 3), {false, 1, 1, ""}), "");
}

// Stamps are pieces as well: one before the exchange, one after it.
TEST(DeadlockCheck, StampsTakeRoom) {
  PlanBuilder first, second;
  const std::vector<SimulatedRank> ranks = posted_ahead(first, second, 3);
  EXPECT_EQ(verdict(ranks, depth(12), true), "");
  EXPECT_NE(verdict(ranks, depth(6), true), "");
}

// Two communicators of the same two ranks, which use them in different orders.
std::vector<SimulatedRank> crossed(PlanBuilder& first, PlanBuilder& second) {
  const Group both = group({0, 1});
  for (PlanBuilder* builder : {&first, &second}) {
    const std::int32_t a = builder->queue("a", false, 0), b = builder->queue("b", false, 0);
    builder->exchange(builder == &first ? a : b, Kind::all_reduce, 1);
    builder->exchange(builder == &first ? b : a, Kind::all_reduce, 1);
  }
  return {first.rank(0, {both, both}), second.rank(1, {both, both})};
}

TEST(DeadlockCheck, TheSameOrderIsDemandedOnlyWhereExchangesCompete) {
  PlanBuilder first, second;
  const std::vector<SimulatedRank> ranks = crossed(first, second);
  EXPECT_EQ(verdict(ranks, resident(0)), "");
  EXPECT_EQ(verdict(ranks, resident(2)), "");
  const std::string why = verdict(ranks, resident(1));
  EXPECT_NE(why.find("may have 1 exchanges under way at a time and must have 2, or this layout stands still"),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("rank 0, queue b, call 0 (all_reduce b 1 B) of step 0 waits for one of the 1 exchanges"),
            std::string::npos)
      << why;
  PlanBuilder third, fourth;
  const Group both = group({0, 1});
  for (PlanBuilder* builder : {&third, &fourth})
    for (const char* name : {"a", "b"})
      builder->exchange(builder->queue(name, false, 0), Kind::all_reduce, 1);
  EXPECT_EQ(verdict({third.rank(0, {both, both}), fourth.rank(1, {both, both})}, resident(1)), "");
}

// An exchange handed over first but not ready holds the place of those behind it.
TEST(DeadlockCheck, ExchangesThatCompeteBeginInTheOrderOfThePlan) {
  PlanBuilder first, second;
  const Group both = group({0, 1});
  for (PlanBuilder* builder : {&first, &second}) {
    const std::int32_t a = builder->queue("a", false, 0), b = builder->queue("b", false, 0);
    builder->exchange(a, Kind::all_reduce, 1, {{b, 0, 0}});
    builder->exchange(b, Kind::all_reduce, 1);
  }
  const std::vector<SimulatedRank> ranks = {first.rank(0, {both, both}), second.rank(1, {both, both})};
  EXPECT_EQ(verdict(ranks, resident(2)), "");
  EXPECT_NE(verdict(ranks, resident(1)).find("waits for the exchange before it in the plan to begin"),
            std::string::npos)
      << verdict(ranks, resident(1));
}

TEST(DeadlockCheck, ManyRanksCostOneRanksWork) {
  const auto begin = std::chrono::steady_clock::now();
  const Assembly many(tiny_recipe({"batch.global=16384"}, data_parallel(4096)), plugins());
  const std::vector<SimulatedRank> ranks =
      all_ranks(many.program(), [&](int) -> const Plan& { return many.plan(); });
  EXPECT_EQ(verdict(ranks, {true, 4, 1, "nccl"}), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace prun::test::deadlock_check_test
