// How a chain is cut into the stages of a pipeline.
#include "plan/pipeline/stages.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.hpp"

namespace prun::test {
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
  EXPECT_EQ(cut_evenly(costs, 2), (std::vector<Stage>{{0, 4}, {4, 6}}));
  EXPECT_EQ(cut_evenly(costs, 1), (std::vector<Stage>{{0, 6}}));
}

TEST(Stages, AmongEqualsTheMostEvenCut) {
  // The last one alone costs 9: the others are still shared out.
  const std::vector<double> costs = {1, 1, 1, 1, 9};
  EXPECT_EQ(cut_evenly(costs, 3), (std::vector<Stage>{{0, 2}, {2, 4}, {4, 5}}));
}

using Worth = std::pair<double, double>;  // the costliest stage, and the sum of squares

Worth worth(std::span<const double> costs, const std::vector<Stage>& stages) {
  Worth worth;
  for (const Stage& stage : stages) {
    const double cost = std::accumulate(costs.begin() + stage.first, costs.begin() + stage.last, 0.0);
    worth.first = std::max(worth.first, cost);
    worth.second += cost * cost;
  }
  return worth;
}

// Of all cuts of what is left into so many stages.
Worth best_of_all(std::span<const double> costs, std::vector<Stage> begun, std::int64_t stages) {
  const auto count = static_cast<std::int32_t>(costs.size());
  const std::int32_t first = begun.empty() ? 0 : begun.back().last;
  if (stages == 1) {
    begun.push_back({first, count});
    return worth(costs, begun);
  }
  Worth best{1e9, 1e9};
  for (std::int32_t last = first + 1; last + stages - 1 <= count; ++last) {
    begun.push_back({first, last});
    best = std::min(best, best_of_all(costs, begun, stages - 1));
    begun.pop_back();
  }
  return best;
}

TEST(Stages, NoOtherCutIsBetter) {
  const RandomStream draw(7, 7);
  std::uint64_t n = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs(2 + draw.bits32(n++) % 8);
    for (double& cost : costs) cost = draw.bits32(n++) % 4;
    const auto stages = static_cast<std::int64_t>(1 + draw.bits32(n++) % costs.size());
    const Worth ours = worth(costs, cut_evenly(costs, stages)), best = best_of_all(costs, {}, stages);
    EXPECT_EQ(ours.first, best.first) << testing::PrintToString(costs) << " in " << stages;
  }
}

TEST(Stages, NoStageIsEmpty) {
  const std::vector<double> nothing = {0, 0, 0, 0};
  const std::vector<Stage> stages = cut_evenly(nothing, 4);
  for (const Stage& stage : stages) EXPECT_EQ(stage.last, stage.first + 1);
}

TEST(Stages, FewerLayersThanStagesAreRefused) {
  const std::vector<double> costs = {1, 1, 1};
  EXPECT_NE(refusal([&] { cut_evenly(costs, 4); }).find("has 3 layers"), std::string::npos);
}

TEST(Stages, AListIsTakenAsItIs) {
  const std::vector<std::int64_t> counts = {3, 1};
  EXPECT_EQ(cut_as_told(counts, 4, 2), (std::vector<Stage>{{0, 3}, {3, 4}}));
  EXPECT_NE(refusal([&] { cut_as_told(counts, 5, 2); }).find("adds up to 4, the model has 5"),
            std::string::npos);
  EXPECT_NE(refusal([&] { cut_as_told(counts, 4, 3); }).find("lists 2 stages, there are 3"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test
