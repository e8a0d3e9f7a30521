// How large a recipe may be: what cannot be planned in seconds is refused with the bound, what can is.
#include "plan/launch_limit.hpp"

#include <gtest/gtest.h>

#include "plan/pipeline/stages.hpp"
#include "simulate/simulate.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::limits_test {
namespace {

std::string refusal(const std::vector<std::string>& sets, const std::string& more = {}) {
  try {
    Assembly(tiny_recipe(sets, more), plugins());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "planned";
}

const std::string pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n";

TEST(Limits, AStepOfTooManyKernelsIsRefusedWithTheBound) {
  const std::string bound = "more than the 8000000 that can be planned";
  using Sets = std::vector<std::string>;
  for (const std::string& more : {std::string(), pipeline})
    for (const Sets& sets : {Sets{"batch.global=1000000"}, Sets{"batch.global=1000000000"},
                             Sets{"model.layers=100000", "batch.global=64"}})
      EXPECT_NE(refusal(sets, more).find(bound), std::string::npos) << sets[0] << ": " << refusal(sets, more);
}

TEST(Limits, AMeshOfTooManyRanksIsRefusedWithTheBound) {
  const std::string two = "[mesh]\ndp = 1048576\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n" +
                          std::string("[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n");
  EXPECT_NE(refusal({}, two).find("the mesh has more than 1048576 ranks"), std::string::npos)
      << refusal({}, two);
}

// Groups, classes and virtual time of a million ranks; in the square of their number it would take minutes.
TEST(Limits, AMillionRanksAreSimulated) {
  class UnitPrices final : public Prices {
    double kernel(const Program&, const PlannedStep&) override { return 1e-4; }
    double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-5; }
  } prices;
  const Assembly assembly(
      tiny_recipe({"batch.micro=1", "batch.global=1048576"}, data_parallel(static_cast<int>(most_ranks))),
      plugins());
  const Simulation result = simulate(
      all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }), prices);
  ASSERT_EQ(result.ranks.size(), 1u);
  EXPECT_EQ(result.ranks[0].alike, most_ranks);
}

// As long as a chain may be: in the square of its length each it would take minutes.
TEST(Limits, AHundredStagesAreCutFromTwentyThousandLayers) {
  const std::vector<double> costs(20'000, 1.0);
  const std::vector<Stage> stages = cut_evenly(costs, 100);
  for (const Stage& stage : stages) EXPECT_EQ(stage.last - stage.first, 200);
}

}  // namespace
}  // namespace prun::test::limits_test
