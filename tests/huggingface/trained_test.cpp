// Families beside PyTorch: losses of sequences of several lengths, shorter and longer than windows, the
// gradient of every weight, and the losses of 20 steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hugging_face/hugging_face.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"

namespace prun::test::trained_test {
namespace {

class TrainedModel : public testing::TestWithParam<std::string> {
 protected:
  SafetensorsFile expected() const { return SafetensorsFile(there_ / "expected.safetensors"); }
  // Without what PyTorch's run has not.
  Recipe recipe(std::vector<std::string> sets) const {
    sets.emplace_back("optimizer.clip=0");
    if (data_of(GetParam()).empty()) sets.emplace_back("model.router_bias_rate=0");
    return recipe_from(there_, GetParam(), std::move(sets));
  }
  std::vector<double> losses(const Recipe& recipe, int steps) const {
    const Assembly assembly(recipe, plugins());
    Trainer trainer(assembly, plugins());
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) losses.push_back(trainer.step().loss);
    return losses;
  }

  const std::filesystem::path there_ = hugging_face(GetParam());
};
INSTANTIATE_TEST_SUITE_P(HuggingFace, TrainedModel, testing::ValuesIn(trained_models),
                         [](const auto& model) { return model.param; });

TEST_P(TrainedModel, HasTheirLossOfSequencesOfAnyLength) {
  const auto lengths = numbers_of<std::int32_t>(expected(), "lengths");
  const auto wanted = numbers_of<double>(expected(), "losses_of");
  ASSERT_GE(lengths.size(), 3u);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::string> sets = {"model.seq=" + std::to_string(lengths[i])};
    if (GetParam() == "t5")
      sets.push_back("model.inputs=" + std::to_string(numbers_of<std::int32_t>(expected(), "inputs").at(i)));
    EXPECT_NEAR(losses(recipe(std::move(sets)), 1)[0] / wanted[i], 1.0, 1e-5) << lengths[i] << " positions";
  }
}

TEST_P(TrainedModel, HasTheirLossesOverTwentySteps) {
  const auto wanted = numbers_of<double>(expected(), "losses");
  ASSERT_EQ(wanted.size(), 20u);
  const std::vector<double> got = losses(recipe({}), 20);
  for (std::size_t step = 0; step < wanted.size(); ++step)
    EXPECT_NEAR(got[step] / wanted[step], 1.0, 1e-5) << "step " << step;
}

// A step of length 1 along the gradient, and out again: what is missing then is the gradient.
TEST_P(TrainedModel, HasTheirGradients) {
  const TempFolder folder;
  const Recipe one = recipe({"optimizer.plugin=sgd", "optimizer.lr=1", "run.out=" + (folder / "run")});
  {
    const Assembly assembly(one, plugins());
    Trainer trainer(assembly, plugins());
    trainer.step();
    trainer.save();
  }
  export_checkpoint(plugins(), {folder / "run", folder / "out", {}, 1 << 30, {}});
  const SafetensorsFile before(there_ / "model.safetensors"),
      wanted = expected(), after(std::filesystem::path(folder / "out") / "model.safetensors");
  for (const SafetensorsEntry& entry : before.entries()) {
    const auto was = numbers_of<float>(before, entry.name), is = numbers_of<float>(after, entry.name);
    if (entry.name.ends_with("e_score_correction_bias")) {  // which no gradient trains
      EXPECT_EQ(was, is) << entry.name;
      continue;
    }
    const auto gradient = numbers_of<float>(wanted, "gradient." + entry.name);
    ASSERT_EQ(is.size(), gradient.size()) << entry.name;
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < is.size(); ++i) {
      largest = std::max<double>(largest, std::abs(gradient[i]));
      apart = std::max<double>(apart, std::abs(was[i] - is[i] - gradient[i]));
    }
    EXPECT_GT(largest, 0) << entry.name;
    // What all keys have in common changes no weight: of its gradient is left what sums round.
    const bool rounding = entry.name.ends_with("self.key.bias");
    EXPECT_LE(apart, rounding ? 1e-7 : 1e-4 * largest) << entry.name;
    if (rounding) {
      EXPECT_LE(largest, 1e-7) << entry.name;
    }
  }
}

}  // namespace
}  // namespace prun::test::trained_test
