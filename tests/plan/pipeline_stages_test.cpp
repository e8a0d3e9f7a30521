// How a chain is cut into the stages of a pipeline.
#include "plan/pipeline/lay_out_pipeline.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/random.hpp"
#include "plugins/strategy/pipeline/cut_evenly.hpp"

namespace prun::test::pipeline_stages_test {
namespace {

std::string refusal(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Stages, TheCostliestStageCostsLeast) {
  const std::vector<double> costs = {0, 2, 2, 2, 2, 3};
  EXPECT_EQ(cut_evenly(costs, 2), (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(cut_evenly(costs, 1), (std::vector<std::int64_t>{6}));
}

TEST(Stages, AmongEqualsTheMostEvenCut) {
  // The last one alone costs 9: the others are still shared out.
  const std::vector<double> costs = {1, 1, 1, 1, 9};
  EXPECT_EQ(cut_evenly(costs, 3), (std::vector<std::int64_t>{2, 2, 1}));
}

double costliest(std::span<const double> costs, const std::vector<std::int64_t>& stages) {
  double most = 0;
  auto at = costs.begin();
  for (const std::int64_t layers : stages) {
    most = std::max(most, std::accumulate(at, at + layers, 0.0));
    at += layers;
  }
  return most;
}

// The costliest stage of the best of all cuts of what is left into so many stages.
double least(std::span<const double> costs, std::int64_t stages) {
  if (stages == 1) return std::accumulate(costs.begin(), costs.end(), 0.0);
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t n = 1; n + static_cast<std::size_t>(stages) - 1 <= costs.size(); ++n)
    best = std::min(best, std::max(least(costs.first(n), 1), least(costs.subspan(n), stages - 1)));
  return best;
}

TEST(Stages, NoOtherCutIsBetter) {
  const RandomStream draw(7, 7);
  std::uint64_t n = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs(2 + draw.bits32(n++) % 8);
    for (double& cost : costs) cost = draw.bits32(n++) % 4;
    const auto stages = static_cast<std::int64_t>(1 + draw.bits32(n++) % costs.size());
    EXPECT_EQ(costliest(costs, cut_evenly(costs, stages)), least(costs, stages))
        << testing::PrintToString(costs) << " in " << stages;
  }
}

TEST(Stages, NoStageIsEmpty) {
  const std::vector<double> nothing = {0, 0, 0, 0};
  EXPECT_EQ(cut_evenly(nothing, 4), (std::vector<std::int64_t>{1, 1, 1, 1}));
}

TEST(Stages, FewerLayersThanStagesAreRefused) {
  const std::vector<double> costs = {1, 1, 1};
  EXPECT_NE(refusal([&] { cut_evenly(costs, 4); }).find("cannot split 3 layers"), std::string::npos);
}

TEST(Stages, AListIsTakenAsItIs) {
  const std::vector<std::int64_t> counts = {3, 1};
  EXPECT_EQ(cut_as_requested(counts, 4, 2), (std::vector<Stage>{{0, 3}, {3, 4}}));
  EXPECT_NE(refusal([&] { cut_as_requested(counts, 5, 2); }).find("adds up to 4, the model has 5"),
            std::string::npos);
  EXPECT_NE(refusal([&] { cut_as_requested(counts, 4, 3); }).find("lists 2 stages, there are 3"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test::pipeline_stages_test
