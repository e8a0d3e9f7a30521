// Steps that overlap, in virtual time: no rank is idle between drains, and a drain costs what it is said to.
#include <gtest/gtest.h>

#include "estimate/simulate.hpp"
#include "plan/pipeline/timing.hpp"
#include "support/assembly_fixture.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::overlap_test {
namespace {

// A layer's forward takes 1 unit, each half of its backward another, and all else nothing.
class UnitCostModel final : public FixedCostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    const Op& op = program.op(step.op);
    if (program.segment(op.segment).name != "block") return 0;
    const std::vector<Id>& ops = program.segment(op.segment).ops(op.function);
    if (ops.front() != step.op) return 0;
    return op.function == FunctionKind::forward ? 1 : op.function == FunctionKind::backward ? 2 : 0;
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 0; }
};

Assembly assembly_of(const std::string& schedule, int ranks, int microbatches, const std::string& layers) {
  return Assembly(
      tiny_recipe(
          {"model.layers=" + std::to_string(ranks), "batch.micro=1",
           "batch.global=" + std::to_string(microbatches), "mesh.pp=" + std::to_string(ranks)},
          "[[strategy]]\nplugin = 'pipeline'\nschedule = '" + schedule + "'\nlayers = " + layers + "\n"),
      plugins());
}

Simulation simulated(const Assembly& assembly, std::int64_t steps) {
  UnitCostModel cost_model;
  const auto plan_of = [&](int rank) -> const Plan& { return assembly.plan_of(rank); };
  return simulate(all_ranks(assembly.program(), plan_of), cost_model, {steps, 2});
}

TEST(Overlap, NoRankIsIdleBetweenDrains) {
  // The embedding stands with the first layer, the head with the last.
  for (const auto& [ranks, layers] : {std::pair{2, "[2, 2]"}, {3, "[2, 1, 2]"}, {4, "[2, 1, 1, 2]"}})
    for (const int microbatches : {ranks, ranks + 1, 2 * ranks}) {
      const Assembly two = assembly_of("2bw", ranks, microbatches, layers),
                     one = assembly_of("1f1b", ranks, microbatches, layers);
      const std::int64_t steps = 6;
      const Simulation ahead = simulated(two, steps), flushed = simulated(one, steps);
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(microbatches));
      EXPECT_DOUBLE_EQ(ahead.step_seconds, 3.0 * microbatches);
      EXPECT_DOUBLE_EQ(flushed.step_seconds, 3.0 * (microbatches + ranks - 1));
      for (const RankTimes& rank : ahead.ranks) EXPECT_DOUBLE_EQ(rank.times.busy[0], 3.0 * microbatches);
      // That all of them end takes as long as the bubble of one step that does not overlap.
      EXPECT_DOUBLE_EQ(ahead.all_seconds, 3.0 * (steps * microbatches + ranks - 1));
      const Overlap& overlap = two.pipeline()->order.overlap.value();
      EXPECT_DOUBLE_EQ(overlap.bubble, 0);
      EXPECT_DOUBLE_EQ(overlap.drain, 3.0 * (ranks - 1));
    }
}

// With exchanges that take time too, and whatever the host does: three steps say what many would.
TEST(Overlap, TheLastOfThreeStepsIsAsAllThatFollow) {
  const Assembly assembly = assembly_of("2bw", 3, 5, "[2, 1, 2]");
  FixedCostModel cost_model;
  const auto plan_of = [&](int rank) -> const Plan& { return assembly.plan_of(rank); };
  const auto seconds = [&](std::int64_t steps) {
    return simulate(all_ranks(assembly.program(), plan_of), cost_model, {steps, 2}).step_seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(4), seconds(9));
}

// ---------------------------------------------------------------- a microbatch an update

Assembly stashed_assembly(int ranks, const std::string& layers) {
  return Assembly(
      tiny_recipe({"model.layers=" + std::to_string(ranks), "model.tied=false", "batch.micro=1",
                   "batch.global=1", "optimizer.clip=0", "mesh.pp=" + std::to_string(ranks)},
                  "[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\nlayers = " + layers + "\n"),
      plugins());
}

TEST(Stages, NoRankIsIdleBetweenDrains) {
  for (const auto& [ranks, layers] :
       {std::pair{2, "[2, 2]"}, {3, "[2, 1, 2]"}, {4, "[2, 1, 1, 2]"}, {5, "[2, 1, 1, 1, 2]"}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Assembly stashed = stashed_assembly(ranks, layers);
    const std::int64_t steps = 4 * ranks;
    const Simulation simulation = simulated(stashed, steps);
    EXPECT_DOUBLE_EQ(simulation.step_seconds, 3.0);
    for (const RankTimes& rank : simulation.ranks) EXPECT_DOUBLE_EQ(rank.times.busy[0], 3.0);
    EXPECT_DOUBLE_EQ(simulation.all_seconds, 3.0 * static_cast<double>(steps + ranks - 1));
    const Overlap& overlap = stashed.pipeline()->order.overlap.value();
    EXPECT_NEAR(overlap.bubble, 0, 1e-12);
    EXPECT_DOUBLE_EQ(overlap.drain, 3.0 * (ranks - 1));
  }
}

}  // namespace
}  // namespace prun::test::overlap_test
