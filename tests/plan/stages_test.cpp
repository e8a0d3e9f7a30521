// How a chain is cut into the stages of a pipeline.
#include "plan/pipeline/stages.hpp"

#include <gtest/gtest.h>

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
