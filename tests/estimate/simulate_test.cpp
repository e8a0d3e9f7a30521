// Plans in virtual time: golden times, overlap, exposed communication, deadlocks, many ranks.
#include <gtest/gtest.h>

#include <chrono>

#include "plan/proof/lanes.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::simulate_test {
namespace {

using Kind = CommKind;

// The host waits for each step.
const SimulateOptions one_by_one{3, 1};

Simulation run(const std::vector<SimulatedRank>& ranks, const SimulateOptions& options = {}) {
  FixedCostModel cost_model;
  return simulate(ranks, cost_model, options);
}

TEST(Simulate, ASingleQueueIsTheSumOfItsCalls) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true);
  for (Id seconds : {1u, 2u, 3u}) builder.kernel(compute, seconds);
  const Simulation result = run({builder.rank(0)});
  EXPECT_DOUBLE_EQ(result.step_seconds, 6);
  EXPECT_DOUBLE_EQ(result.ranks.at(0).times.busy[0], 6);
  EXPECT_EQ(result.ranks[0].events.size(), 9u);
}

TEST(Simulate, CountsWhatTheExecutorAdds) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), copy = builder.queue("copy", false);
  const Wait copied = builder.kernel(copy, 5);
  builder.kernel(compute, 1);
  builder.kernel(compute, 2, {copied});
  FixedCostModel cost_model;
  cost_model.extra = {0.25, 0.5};
  const Simulation result = simulate(std::vector{builder.rank(0)}, cost_model, one_by_one);
  EXPECT_DOUBLE_EQ(result.step_seconds, 5.25 + 0.5 + 2.25);
}

class LateCostModel final : public FixedCostModel {
 public:
  double lateness(const PlannedExchange&, std::int64_t members, std::string_view) override {
    return static_cast<double>(members);
  }
};

// Members that do the same wait for the slowest; where they differ, the simulation has that already.
TEST(Simulate, AddsLatenessWhereMembersAreAlike) {
  const auto step = [](Id of_the_second) {
    PlanBuilder first, second;
    for (PlanBuilder* builder : {&first, &second}) {
      const std::int32_t compute = builder->queue("compute", true), dp = builder->queue("dp", false, 0);
      builder->exchange(dp, Kind::all_reduce, 3,
                        {builder->kernel(compute, builder == &first ? 4 : of_the_second)});
    }
    const Group both = group({0, 1});
    const bool alike = of_the_second == 4;
    LateCostModel cost_model;
    return simulate(
               std::vector{first.rank(0, {nullptr, both}), (alike ? first : second).rank(1, {nullptr, both})},
               cost_model, one_by_one)
        .step_seconds;
  };
  EXPECT_DOUBLE_EQ(step(4), 4 + 3 + 2);
  EXPECT_DOUBLE_EQ(step(6), 6 + 3);
}

class SlowBeside final : public FixedCostModel {
 public:
  double share_beside_exchanges() override { return 0.5; }
};

// While both go on, kernels get half as far; by a plugin that does not enqueue, the device has no part in it.
TEST(Simulate, KernelsAreSlowerBesideExchanges) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), dp = builder.queue("dp", false, 0);
  const Wait first = builder.kernel(compute, 2);
  const Wait summed = builder.exchange(dp, Kind::all_reduce, 3, {first});
  builder.kernel(compute, 1);
  builder.kernel(compute, 1);
  builder.kernel(compute, 4, {summed});
  const std::vector<SimulatedRank> alone{builder.rank(0, {nullptr, group({0})})};
  SlowBeside cost_model;
  SimulateOptions options = one_by_one;
  EXPECT_DOUBLE_EQ(simulate(alone, cost_model, options).step_seconds, 2 + 3 + 4);
  options.enqueued = [](const QueueInfo&) { return true; };
  const Simulation slowed = simulate(alone, cost_model, options);
  EXPECT_DOUBLE_EQ(slowed.slowed_by_exchanges(), 2);
  EXPECT_DOUBLE_EQ(slowed.step_seconds, 2 + 3 + 4 + 2);
}

class FixedPart final : public FixedCostModel {
 public:
  double fixed(const PlannedExchange&, std::int64_t) override { return 2; }
  double lateness(const PlannedExchange&, std::int64_t, std::string_view) override { return 1; }
};

// What they take however little they carry, and whom they wait for, counts once; by a plugin that gets them
// one by one each time.
TEST(Simulate, ExchangesThatAreStartedTogetherTakeTheirFixedTimeOnce) {
  PlanBuilder builder;
  const std::int32_t dp = builder.queue("dp", false, 0);
  builder.exchanges(dp, Kind::reduce_scatter, {5, 4, 1});
  const Group both = group({0, 1});
  const std::vector<SimulatedRank> ranks = {builder.rank(0, {both}), builder.rank(1, {both})};
  FixedPart cost_model;
  SimulateOptions options = one_by_one;
  EXPECT_DOUBLE_EQ(simulate(ranks, cost_model, options).step_seconds, (5 + 1) + (4 + 1) + (1 + 1));
  options.enqueued = [](const QueueInfo& queue) { return queue.name == "dp"; };
  EXPECT_DOUBLE_EQ(simulate(ranks, cost_model, options).step_seconds, (5 + 1) + (4 - 2) + 0);
}

// Forward, then backward beside an exchange, then an update that needs it.
double exposed(std::int64_t exchange, double* step_seconds) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), dp = builder.queue("dp", false, 0);
  const Wait first = builder.kernel(compute, 4);
  const Wait reduced = builder.exchange(dp, Kind::all_reduce, exchange, {first});
  builder.kernel(compute, 4);
  builder.kernel(compute, 2, {reduced});
  const Group both = group({0, 1});
  const Simulation result = run({builder.rank(0, {nullptr, both}), builder.rank(1, {nullptr, both})});
  EXPECT_EQ(result.ranks.size(), 1u);
  EXPECT_EQ(result.ranks[0].alike, 2);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.busy[1], static_cast<double>(exchange));
  *step_seconds = result.step_seconds;
  return result.exposed_communication();
}

TEST(Simulate, OnlyWhatIsNotHiddenIsExposed) {
  double step = 0;
  EXPECT_DOUBLE_EQ(exposed(3, &step), 0);
  EXPECT_DOUBLE_EQ(step, 10);
  EXPECT_DOUBLE_EQ(exposed(4, &step), 0);
  EXPECT_DOUBLE_EQ(exposed(6, &step), 2);
  EXPECT_DOUBLE_EQ(step, 12);
}

TEST(Simulate, APeerThatComesLateIsExposed) {
  PlanBuilder early, late;
  const Group both = group({0, 1});
  for (auto& [builder, seconds] : {std::pair<PlanBuilder*, Id>{&early, 1}, {&late, 5}}) {
    const std::int32_t compute = builder->queue("compute", true), dp = builder->queue("dp", false, 0);
    const Wait first = builder->kernel(compute, seconds);
    const Wait reduced = builder->exchange(dp, Kind::all_reduce, 2, {first});
    builder->kernel(compute, 1, {reduced});
  }
  const Simulation result = run({early.rank(0, {nullptr, both}), late.rank(1, {nullptr, both})});
  ASSERT_EQ(result.ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.exposed_communication, 6);
  EXPECT_DOUBLE_EQ(result.ranks[1].times.exposed_communication, 2);
  EXPECT_DOUBLE_EQ(result.exposed_communication(), 6);
  EXPECT_DOUBLE_EQ(result.step_seconds, 8);
}

// Updates on the host that wait for gradients hold up nothing while the device computes.
TEST(Simulate, WhatAnotherDeviceWaitsForIsNotExposed) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), dp = builder.queue("dp", false, 0),
                     host = builder.queue("updates", true);
  builder.plan().queues[static_cast<std::size_t>(host)].device = 1;
  const Wait first = builder.kernel(compute, 1);
  const Wait reduced = builder.exchange(dp, Kind::all_reduce, 6, {first});
  builder.kernel(compute, 9);
  builder.kernel(host, 1, {reduced});
  const Group both = group({0, 1});
  const Simulation result =
      run({builder.rank(0, {nullptr, both}), builder.rank(1, {nullptr, both})}, one_by_one);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.waiting[2], 7);
  EXPECT_DOUBLE_EQ(result.exposed_communication(), 0);
}

// A gather of what a drive reads first: what it waits for the drive is no communication.
TEST(Simulate, WhatCommunicationWaitsForIsNotExposedCommunication) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), dp = builder.queue("dp", false, 0),
                     drive = builder.queue("drive", true);
  builder.plan().queues[static_cast<std::size_t>(drive)].device = 1;
  const Wait read = builder.kernel(drive, 6);
  const Wait gathered = builder.exchange(dp, Kind::all_gather, 3, {read});
  builder.kernel(compute, 2);
  builder.kernel(compute, 1, {gathered});
  const Group both = group({0, 1});
  const Simulation result =
      run({builder.rank(0, {nullptr, both}), builder.rank(1, {nullptr, both})}, one_by_one);
  EXPECT_DOUBLE_EQ(result.step_seconds, 10);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.waiting[0], 7);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.exposed_communication, 3);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.exposed_transfers, 4);
}

TEST(Simulate, WaitsCountOneAfterTheOther) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), copy = builder.queue("copy", false),
                     dp = builder.queue("dp", false, 0);
  const Wait copied = builder.kernel(copy, 3), gathered = builder.exchange(dp, Kind::all_gather, 5);
  builder.kernel(compute, 1);
  builder.kernel(compute, 1, {copied, gathered});
  const Group both = group({0, 1});
  const Simulation result =
      run({builder.rank(0, {nullptr, nullptr, both}), builder.rank(1, {nullptr, nullptr, both})}, one_by_one);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.waiting[0], 4);
  EXPECT_DOUBLE_EQ(result.ranks[0].times.exposed_communication, 2);
}

TEST(Simulate, WaitsReachIntoEarlierSteps) {
  for (const auto& [ago, running, expected] :
       {std::tuple{1, 2, 7.0}, {2, 2, 4.0}, {1, 1, 7.0}, {2, 1, 7.0}}) {
    PlanBuilder builder;
    const std::int32_t compute = builder.queue("compute", true), copy = builder.queue("copy", false);
    const Wait loaded = builder.kernel(copy, 3, {{compute, 0, ago}});
    builder.kernel(compute, 4, {loaded});
    SimulateOptions options;
    options.running = running;
    EXPECT_DOUBLE_EQ(run({builder.rank(0)}, options).step_seconds, expected) << ago << running;
  }
}

// What three steps say is what many would.
TEST(Simulate, TheLastOfThreeStepsIsAsAllThatFollow) {
  for (const Layout& layout : layouts()) {
    const Assembly assembly(tiny_recipe(with({"model.layers=4", "batch.micro=1"}, layout.sets), layout.text),
                            plugins());
    FixedCostModel cost_model;
    const auto seconds = [&](std::int64_t steps, std::int64_t running) {
      return simulate(all_ranks(assembly.program(),
                                [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
                      cost_model, {steps, running})
          .step_seconds;
    };
    EXPECT_DOUBLE_EQ(seconds(3, 2), seconds(8, 2)) << layout.name;
    EXPECT_LE(seconds(3, 2), seconds(3, 1)) << layout.name;
  }
}

// Two stages, two microbatches, forward only.
TEST(Simulate, SendsMeetReceivesInOrder) {
  PlanBuilder first, second;
  const Group line = group({0, 1});
  const std::int32_t c0 = first.queue("compute", true), out = first.queue("pp", false, 0);
  const std::int32_t c1 = second.queue("compute", true), in = second.queue("pp", false, 0);
  for (Id seconds : {2u, 1u}) {
    const Wait computed = first.kernel(c0, seconds);
    first.exchange(out, Kind::send, 1, {computed}, 1);
    const Wait arrived = second.exchange(in, Kind::recv, 1, {}, 0);
    second.kernel(c1, 3, {arrived});
  }
  const std::vector<SimulatedRank> ranks = {first.rank(0, {nullptr, line}), second.rank(1, {nullptr, line})};
  // First: computed at 2, there at 3, done at 6. Second: there at 4, begins at 6, done at 9.
  const Simulation alone = run(ranks, {1});
  EXPECT_DOUBLE_EQ(alone.step_seconds, 9);
  EXPECT_DOUBLE_EQ(alone.ranks.at(1).times.exposed_communication, 3);
  EXPECT_DOUBLE_EQ(alone.ranks[0].times.exposed_communication, 0);
  // In later steps the first stage has its first microbatch ready when the second one's step begins, and
  // where steps follow each other, all of them.
  const Simulation going = run(ranks, one_by_one);
  EXPECT_DOUBLE_EQ(going.step_seconds, 7);
  EXPECT_DOUBLE_EQ(going.ranks.at(1).times.exposed_communication, 1);
  const Simulation ahead = run(ranks);
  EXPECT_DOUBLE_EQ(ahead.step_seconds, 6);
  EXPECT_DOUBLE_EQ(ahead.ranks.at(1).times.exposed_communication, 0);
}

std::string refusal(const std::vector<SimulatedRank>& ranks) {
  try {
    run(ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Simulate, PlansThatDoNotFitTogetherAreRefused) {
  PlanBuilder a, b;
  a.exchange(a.queue("dp", false, 0), Kind::all_reduce, 8);
  b.exchange(b.queue("dp", false, 0), Kind::all_reduce, 4);
  const Group both = group({0, 1});
  EXPECT_EQ(
      refusal({a.rank(0, {both}), b.rank(1, {both})}),
      "the plans do not fit together: rank 0, queue dp, call 0 (all_reduce dp 8 B) meets rank 1, queue dp, "
      "call 0 (all_reduce dp 4 B)");
}

TEST(Simulate, FindsRanksThatSendToEachOtherFirst) {
  PlanBuilder a, b;
  const Group both = group({0, 1});
  for (auto& [builder, peer] : {std::pair<PlanBuilder*, int>{&a, 1}, {&b, 0}}) {
    const std::int32_t pp = builder->queue("pp", false, 0);
    builder->exchange(pp, Kind::send, 1, {}, peer);
    builder->exchange(pp, Kind::recv, 1, {}, peer);
  }
  EXPECT_EQ(refusal({a.rank(0, {both}), b.rank(1, {both})}),
            "the plan cannot be carried out; these wait for each other:\n"
            "  rank 0, queue pp, call 0 (send pp 1 B) of step 0 waits for rank 1\n"
            "  rank 1, queue pp, call 0 (send pp 1 B) of step 0 waits for rank 0");
}

TEST(Simulate, FindsQueuesThatWaitForEachOther) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true), copy = builder.queue("copy", false);
  builder.kernel(compute, 1, {{copy, 0, 0}});
  builder.kernel(copy, 1, {{compute, 0, 0}});
  EXPECT_EQ(
      refusal({builder.rank(0)}),
      "the plan cannot be carried out; these wait for each other:\n"
      "  rank 0, queue compute, call 0 (forward block mb 0) of step 0 waits for queue copy, call 0 (forward "
      "block mb 0)\n"
      "  rank 0, queue copy, call 0 (forward block mb 0) of step 0 waits for queue compute, call 0 (forward "
      "block mb 0)");
}

TEST(Simulate, RanksThatCannotBeToldApartCostOneRanksWork) {
  const auto begin = std::chrono::steady_clock::now();
  const Assembly many(tiny_recipe({"batch.global=16384"}, data_parallel(4096)), plugins());
  FixedCostModel cost_model, of_two;
  const Simulation result =
      simulate(all_ranks(many.program(), [&](int) -> const Plan& { return many.plan(); }), cost_model);
  ASSERT_EQ(result.ranks.size(), 1u);
  EXPECT_EQ(result.ranks[0].alike, 4096);
  EXPECT_EQ(result.ranks[0].events.empty(), false);
  const Assembly two(tiny_recipe({"batch.global=8"}, data_parallel(2)), plugins());
  simulate(all_ranks(two.program(), [&](int) -> const Plan& { return two.plan(); }), of_two);
  EXPECT_EQ(cost_model.asked, of_two.asked);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

// 8 stages of 512 data-parallel ranks: a rank a stage is simulated.
TEST(Simulate, TellsApartWhatMustBe) {
  constexpr int stages = 8, copies = 512;
  std::vector<std::unique_ptr<PlanBuilder>> plans;
  for (int stage = 0; stage < stages; ++stage) {
    PlanBuilder& plan = *plans.emplace_back(std::make_unique<PlanBuilder>());
    const std::int32_t compute = plan.queue("compute", true), pp = plan.queue("pp", false, 0),
                       dp = plan.queue("dp", false, 1);
    std::vector<Wait> arrived;
    if (stage > 0) arrived.push_back(plan.exchange(pp, Kind::recv, 1, {}, stage - 1));
    const Wait computed = plan.kernel(compute, 2, arrived);
    if (stage + 1 < stages) plan.exchange(pp, Kind::send, 1, {computed}, stage + 1);
    plan.exchange(dp, Kind::all_reduce, 3, {computed});
  }
  std::vector<Group> lines, rows;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> row(copies);
    for (int copy = 0; copy < copies; ++copy) row[static_cast<std::size_t>(copy)] = copy * stages + stage;
    rows.push_back(group(row));
  }
  std::vector<SimulatedRank> ranks;
  for (int rank = 0; rank < stages * copies; ++rank) {
    const auto stage = static_cast<std::size_t>(rank % stages);
    if (stage == 0) {
      std::vector<int> line(stages);
      for (int s = 0; s < stages; ++s) line[static_cast<std::size_t>(s)] = rank + s;
      lines.push_back(group(line));
    }
    ranks.push_back(plans[stage]->rank(rank, {nullptr, lines.back(), rows[stage]}));
  }
  const Simulation result = run(ranks, {1});
  ASSERT_EQ(result.ranks.size(), 8u);
  for (const RankTimes& rank : result.ranks) EXPECT_EQ(rank.alike, copies);
  EXPECT_DOUBLE_EQ(result.step_seconds, 8 * 2 + 7 * 1 + 3);
}

// One rank of four has another plan: who shares a group with it is not like the others.
TEST(Simulate, GroupsDistinguishRanks) {
  PlanBuilder usual, other;
  for (PlanBuilder* builder : {&usual, &other})
    builder->exchange(builder->queue("dp", false, 0), Kind::all_reduce, 1);
  const Group a = group({0, 1}), b = group({2, 3});
  const std::vector<SimulatedRank> ranks = {usual.rank(0, {a}), usual.rank(1, {a}), usual.rank(2, {b}),
                                            other.rank(3, {b})};
  EXPECT_EQ(classes_of_ranks(ranks), (std::vector<int>{0, 0, 1, 2}));
}

}  // namespace
}  // namespace prun::test::simulate_test
