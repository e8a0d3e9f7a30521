// Saves in virtual time: what they hold up, and what goes on beside them.
#include <gtest/gtest.h>

#include "estimate/forecast.hpp"
#include "estimate/trace.hpp"
#include "support/assembly_fixture.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::save_test {
namespace {

TEST(SimulatedSave, ReadsGoAsFarAheadOfTheDiskAsTheBufferHolds) {
  const std::vector<SaveLoad> reads = {{100, 1}, {100, 1}, {200, 2}};
  EXPECT_EQ(ends_of_reads(reads, {10, 400}), (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(ends_of_reads(reads, {10, 100}), (std::vector<double>{1, 10, 30}));
}

// Seconds: of a forward and backward pass, then an update that overwrites what is saved.
TEST(SimulatedSave, HoldsUpTheFirstWriterAlone) {
  PlanBuilder builder;
  const std::int32_t compute = builder.queue("compute", true);
  builder.kernel(compute, 5);
  builder.kernel(compute, 2);
  SimulatedRank rank = builder.rank(0);
  Plan plan = *rank.plan;
  plan.calls[1].save_read = 0;
  plan.save_reads.resize(1);
  rank.plan = &plan;
  FixedCostModel cost_model;
  SimulateOptions options{2, 1};
  const double without = simulate(std::vector{rank}, cost_model, options).all_seconds;
  EXPECT_DOUBLE_EQ(without, 14);
  for (const auto& [save, delay] : std::map<double, double>{{3, 0}, {8, 3}}) {
    options.save_reads = [save](const SimulatedRank&) { return std::vector<double>{save}; };
    const Simulation held = simulate(std::vector{rank}, cost_model, options);
    EXPECT_DOUBLE_EQ(held.all_seconds - without, delay);
    EXPECT_DOUBLE_EQ(held.ranks[0].times.busy[0], 7);
    const RankTrace trace = trace_of(*rank.program, plan, 0, held.ranks[0].events);
    EXPECT_EQ(trace.queues.back(), "save");
    EXPECT_EQ(std::any_of(trace.rows.begin(), trace.rows.end(),
                          [](const TraceRow& row) { return row.waits && row.name == "wait for save"; }),
              delay > 0);
  }
}

}  // namespace
}  // namespace prun::test::save_test
