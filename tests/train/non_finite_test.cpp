// A gradient that is not finite masks its step's update on every rank and is named alike, whatever the layout
// and the device.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::non_finite_test {
namespace {

// Samples of a step, and the one that spoils step 3.
constexpr int samples = 8, spoilt_step = 3, spoilt_sample = (spoilt_step - 1) * samples + 5;

std::string spoil(const std::string& segment, const std::string& tensor, int layer) {
  return "[[strategy]]\nplugin = 'spoil'\nsegment = '" + segment + "'\ntensor = '" + tensor +
         "'\nlayer = " + std::to_string(layer) + "\nsample = " + std::to_string(spoilt_sample) + "\n";
}

class NonFinite : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe(const std::string& spoils) const {
    const auto& [layout, target] = GetParam();
    return tiny_recipe(
        with(with({"model.layers=4", "batch.global=" + std::to_string(samples)}, layout.sets), target.sets),
        "[plugins]\nops = ['spoil']\n" + spoils + layout.text);
  }
};

TEST_P(NonFinite, TheFirstTensorIsNamedAndNothingIsUpdated) {
  // In the order of the model; buckets of parts have weights and biases apart.
  const std::string spoils =
      spoil("block", "down.weight", 2) + spoil("block", "qkv.bias", 2) + spoil("block", "qkv.weight", 3);
  run_local_ranks(recipe(spoils), plugins().places(), [&](Trainer& trainer) {
    std::vector<double> before;
    for (int step = 1; step <= spoilt_step + 1; ++step) {
      before = parameters_of(trainer);
      const StepResult result = trainer.step();
      EXPECT_EQ(result.kept, step != spoilt_step);
      EXPECT_EQ(result.non_finite, step == spoilt_step ? "block.2.qkv.bias" : "");
      EXPECT_EQ(parameters_of(trainer) == before, step == spoilt_step);
    }
  });
}

TEST_P(NonFinite, ATensorThatTwoSegmentsUseIsNamedOnce) {
  run_local_ranks(recipe(spoil("embedding", "token", 0)), plugins().places(), [&](Trainer& trainer) {
    for (int step = 1; step <= spoilt_step; ++step)
      EXPECT_EQ(trainer.step().non_finite, step == spoilt_step ? "embedding.token" : "");
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, NonFinite,
                         testing::Combine(testing::ValuesIn(layouts_and_delayed()),
                                          testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

}  // namespace
}  // namespace prun::test::non_finite_test
