// The learning rate of each update, by schedule.
#include "train/loop/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

// Of a run of 100 steps whose peak is 0.5.
LearningRate rate(std::vector<std::string> sets) {
  for (std::string& set : sets) set = "optimizer.schedule." + set;
  sets.insert(sets.end(), {"run.steps=100", "optimizer.lr=0.5"});
  return LearningRate(tiny_recipe(sets));
}

TEST(LearningRate, ConstantStaysAtItsPeak) {
  const LearningRate constant = rate({"kind=constant"});
  for (const std::int64_t update : {1, 2, 50, 100, 1000}) EXPECT_EQ(constant.at(update), 0.5);
}

TEST(LearningRate, LinearFallsInEqualStepsToItsFinalShare) {
  const LearningRate linear = rate({"kind=linear", "final=0.2"});
  EXPECT_DOUBLE_EQ(linear.at(1), 0.5 * (0.2 + 0.8 * 0.99));
  EXPECT_DOUBLE_EQ(linear.at(25), 0.5 * (0.2 + 0.8 * 0.75));
  EXPECT_DOUBLE_EQ(linear.at(50), 0.5 * 0.6);
  EXPECT_DOUBLE_EQ(linear.at(100), 0.5 * 0.2);
}

TEST(LearningRate, CosineIsHalfwayInTheMiddle) {
  const LearningRate cosine = rate({"kind=cosine", "final=0.1"});
  EXPECT_DOUBLE_EQ(cosine.at(25), 0.5 * (0.1 + 0.9 * 0.5 * (1 + std::numbers::sqrt2 / 2)));
  EXPECT_DOUBLE_EQ(cosine.at(50), 0.5 * 0.55);
  EXPECT_DOUBLE_EQ(cosine.at(75), 0.5 * (0.1 + 0.9 * 0.5 * (1 - std::numbers::sqrt2 / 2)));
  EXPECT_DOUBLE_EQ(cosine.at(100), 0.5 * 0.1);
}

// The first update counts, the last of the warmup is at the peak, and the fall begins after it.
TEST(LearningRate, WarmupRisesFromOneStepToThePeak) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    const LearningRate warm = rate({std::string("kind=") + kind, "warmup=20", "final=0"});
    EXPECT_DOUBLE_EQ(warm.at(1), 0.5 / 20) << kind;
    EXPECT_DOUBLE_EQ(warm.at(10), 0.25) << kind;
    EXPECT_DOUBLE_EQ(warm.at(19), 0.5 * 19 / 20) << kind;
    EXPECT_DOUBLE_EQ(warm.at(20), 0.5) << kind;
    if (std::string(kind) == "constant") continue;
    EXPECT_LT(warm.at(21), 0.5) << kind;
    EXPECT_DOUBLE_EQ(warm.at(60), 0.25) << kind;  // halfway between warmup and end
    EXPECT_NEAR(warm.at(100), 0, 1e-12) << kind;
  }
}

TEST(LearningRate, FinalOneIsConstantAfterTheWarmup) {
  for (const char* kind : {"linear", "cosine"}) {
    const LearningRate flat = rate({std::string("kind=") + kind, "final=1"});
    for (const std::int64_t update : {1, 37, 100, 200}) EXPECT_DOUBLE_EQ(flat.at(update), 0.5) << kind;
  }
}

// A schedule shorter than the run ends at its final share and stays there.
TEST(LearningRate, AScheduleShorterThanTheRunStaysAtItsEnd) {
  for (const char* kind : {"linear", "cosine"}) {
    const LearningRate brief = rate({std::string("kind=") + kind, "steps=40", "final=0.25"});
    EXPECT_DOUBLE_EQ(brief.at(20), 0.5 * 0.625) << kind;
    EXPECT_GT(brief.at(39), 0.125) << kind;
    for (const std::int64_t update : {40, 41, 100}) EXPECT_DOUBLE_EQ(brief.at(update), 0.125) << kind;
  }
}

TEST(LearningRate, AWarmupAsLongAsTheScheduleEndsAtOnce) {
  const LearningRate steep = rate({"kind=linear", "warmup=100", "final=0.5"});
  EXPECT_DOUBLE_EQ(steep.at(100), 0.5);
  EXPECT_DOUBLE_EQ(steep.at(101), 0.25);
}

}  // namespace
}  // namespace prun::test
