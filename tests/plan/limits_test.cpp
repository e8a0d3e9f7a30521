// How large a recipe may be: what may be planned is, in seconds. What is refused stands in
// tests/cases/layout.
#include "plan/launch_limit.hpp"

#include <gtest/gtest.h>

#include "estimate/simulate.hpp"
#include "plugins/strategy/pipeline/cut_evenly.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::limits_test {
namespace {

// Groups, classes and virtual time of a million ranks; in the square of their number it would take minutes.
TEST(Limits, AMillionRanksAreSimulated) {
  class UnitCostModel final : public CostModel {
    double kernel(const Program&, const PlannedStep&) override { return 1e-4; }
    double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-5; }
  } cost_model;
  const Assembly assembly(
      tiny_recipe({"batch.micro=1", "batch.global=1048576"}, data_parallel(static_cast<int>(most_ranks))),
      plugins());
  const Simulation result =
      simulate(all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
               cost_model);
  ASSERT_EQ(result.ranks.size(), 1u);
  EXPECT_EQ(result.ranks[0].alike, most_ranks);
}

// As long as a chain may be: in the square of its length each it would take minutes.
TEST(Limits, AHundredStagesAreCutFromTwentyThousandLayers) {
  const std::vector<double> costs(20'000, 1.0);
  for (const std::int64_t layers : cut_evenly(costs, 100)) EXPECT_EQ(layers, 200);
}

}  // namespace
}  // namespace prun::test::limits_test
