// The learning rate of each update, by schedule.
#include "train/loop/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/assembly_fixture.hpp"

namespace prun::test::learning_rate_test {
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

TEST(LearningRate, WsdStaysAtItsPeakAndFallsAtTheEnd) {
  for (const char* shape : {"linear", "cosine", "sqrt"}) {
    const LearningRate wsd =
        rate({"kind=wsd", "warmup=10", "decay=20", "final=0.1", std::string("shape=") + shape});
    EXPECT_DOUBLE_EQ(wsd.at(5), 0.25);
    for (const std::int64_t update : {10, 11, 50, 80}) EXPECT_DOUBLE_EQ(wsd.at(update), 0.5) << shape;
    for (const std::int64_t update : {100, 101, 500}) EXPECT_DOUBLE_EQ(wsd.at(update), 0.05) << shape;
  }
  const auto at_85 = [](const char* shape) {
    return rate({"kind=wsd", "decay=20", "final=0.1", std::string("shape=") + shape}).at(85);
  };
  EXPECT_DOUBLE_EQ(at_85("linear"), 0.5 * (0.1 + 0.9 * 0.75));
  EXPECT_DOUBLE_EQ(at_85("cosine"), 0.5 * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 4))));
  EXPECT_DOUBLE_EQ(at_85("sqrt"), 0.5 * (0.1 + 0.9 * 0.5));
}

TEST(LearningRate, InverseSqrtFallsByTheRootOfTheUpdate) {
  const LearningRate root = rate({"kind=inverse-sqrt", "warmup=25", "final=0.4"});
  EXPECT_DOUBLE_EQ(root.at(25), 0.5);
  EXPECT_DOUBLE_EQ(root.at(50), 0.5 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(root.at(100), 0.25);
  EXPECT_DOUBLE_EQ(root.at(1000), 0.2);
  EXPECT_DOUBLE_EQ(rate({"kind=inverse-sqrt"}).at(4), 0.25);
}

TEST(LearningRate, PolynomialFallsByAPowerOfWhatIsLeft) {
  const LearningRate cubic = rate({"kind=polynomial", "warmup=20", "power=3", "final=0.2"});
  EXPECT_DOUBLE_EQ(cubic.at(20), 0.5);
  EXPECT_DOUBLE_EQ(cubic.at(60), 0.5 * (0.2 + 0.8 * 0.125));
  EXPECT_DOUBLE_EQ(cubic.at(100), 0.1);
  EXPECT_DOUBLE_EQ(rate({"kind=polynomial"}).at(50), 0.5 * 0.25);
}

TEST(LearningRate, StepsMultiplyAfterEachOfThem) {
  const LearningRate steps = rate({"kind=steps", "warmup=4", "at=[10, 40]", "factors=[0.5, 0.1]"});
  EXPECT_DOUBLE_EQ(steps.at(2), 0.25);
  EXPECT_DOUBLE_EQ(steps.at(10), 0.5);
  EXPECT_DOUBLE_EQ(steps.at(11), 0.25);
  EXPECT_DOUBLE_EQ(steps.at(40), 0.25);
  EXPECT_DOUBLE_EQ(steps.at(41), 0.05);
}

TEST(LearningRate, PointsAreJoinedEvenly) {
  const LearningRate points = rate({"kind=points", "at=[0, 10, 50]", "factors=[0, 1, 0.2]"});
  EXPECT_DOUBLE_EQ(points.at(5), 0.25);
  EXPECT_DOUBLE_EQ(points.at(10), 0.5);
  EXPECT_DOUBLE_EQ(points.at(30), 0.5 * 0.6);
  EXPECT_DOUBLE_EQ(points.at(50), 0.1);
  EXPECT_DOUBLE_EQ(points.at(99), 0.1);
}

TEST(LearningRate, WhatASchedulesKeysDoNotSayTogetherIsRefused) {
  const auto refused = [](std::vector<std::string> sets, const char* said) {
    for (std::string& set : sets) set = "optimizer.schedule." + set;
    sets.emplace_back("run.steps=100");
    try {
      const Assembly assembly(tiny_recipe(sets), plugins());
      ADD_FAILURE() << said;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  };
  refused({"kind=wsd"}, "needs schedule.decay");
  refused({"kind=wsd", "warmup=50", "decay=60"}, "are more steps than the 100 until the end");
  refused({"decay=60"}, "schedule.decay is for schedule.kind = \"wsd\"");
  refused({"kind=steps"}, "takes its steps from schedule.at");
  refused({"kind=points", "at=[1, 2]", "factors=[1.0]"}, "each step has one");
  refused({"kind=points", "at=[2, 2]", "factors=[1.0, 2.0]"}, "go up");
  refused({"at=[2]"}, "are for schedule.kind = \"steps\"");
}

TEST(LearningRate, AWarmupAsLongAsTheScheduleEndsAtOnce) {
  const LearningRate steep = rate({"kind=linear", "warmup=100", "final=0.5"});
  EXPECT_DOUBLE_EQ(steep.at(100), 0.5);
  EXPECT_DOUBLE_EQ(steep.at(101), 0.25);
}

}  // namespace
}  // namespace prun::test::learning_rate_test
