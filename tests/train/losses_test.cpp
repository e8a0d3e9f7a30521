// Losses of a training step by data set and role: that they are parts of the loss, the same in every layout,
// and that nobody notices whether they are asked for.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::losses_test {
namespace {

using Sets = std::vector<std::string>;
using Parts = std::vector<LossGroups::Part>;

constexpr int steps = 3;
const Sets exact =
    with(without_codes, {"precision.compute=fp64", "precision.state=fp64", "precision.master=state",
                         "precision.moments=state", "model.dropout=0", "model.layers=4", "batch.global=8"});
const Sets asked = {"run.loss_by_set=true", "run.loss_by_role=true"};
// Whose roles are known beside data that know none.
const Sets grows = {"batch.ramp.sizes=[2, 4]", "batch.ramp.until=[1, 2]"};
const std::string regularized = "[[strategy]]\nplugin = 'loss'\nz = 0.01\nsmoothing = 0.1\n";
const std::string blend = "[[data.blend]]\nplugin = 'ragged'\nweight = 2.0\n";

struct Told {
  std::vector<StepResult> steps;
  std::vector<Parts> parts;
};

Told told_of(const Recipe& recipe) {
  Told told;
  const LossGroups groups = LossGroups::of(recipe, plugins());
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<StepResult> own;
    trainer.run(steps, [&](const StepResult& result) { own.push_back(result); });
    if (trainer.assembly().rank() == 0) told.steps = own;
  });
  for (const StepResult& step : told.steps) told.parts.push_back(groups.parts(step.losses));
  return told;
}

const LossGroups::Part* find(const Parts& parts, const std::string& name) {
  for (const LossGroups::Part& part : parts)
    if (part.name == name) return &part;
  return nullptr;
}

// All that some parts come to: the loss of their targets, and how many there are.
std::pair<double, std::int64_t> sum_of(const Parts& parts, const std::string& prefix) {
  std::pair<double, std::int64_t> sum{0, 0};
  for (const LossGroups::Part& part : parts)
    if (part.name.starts_with(prefix)) {
      sum.first += part.loss * static_cast<double>(part.targets);
      sum.second += part.targets;
    }
  return sum;
}

class Losses : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  static Recipe recipe(const Sets& more) {
    const auto& [layout, target] = GetParam();
    return tiny_recipe(with(with(with(layout.sets, target.sets), exact), more), layout.text + blend);
  }
};

TEST_P(Losses, ArePartsOfTheLoss) {
  const Told told = told_of(recipe(asked));
  for (int i = 0; i < steps; ++i) {
    const StepResult& step = told.steps[i];
    const auto [loss, targets] = sum_of(told.parts[i], "data");
    EXPECT_EQ(targets, step.targets);
    EXPECT_NEAR(loss / static_cast<double>(targets), step.loss, 1e-13);
    const auto [by_role, of_roles] = sum_of(told.parts[i], "role.");
    const LossGroups::Part* const ragged = find(told.parts[i], "data.blend.0");
    ASSERT_NE(ragged, nullptr);
    EXPECT_EQ(of_roles, ragged->targets);
    EXPECT_NEAR(by_role / static_cast<double>(of_roles), ragged->loss, 1e-13);
    EXPECT_TRUE(step.tallies.empty());
  }
}

TEST_P(Losses, AreThoseOfOneRank) {
  const std::string name = std::get<0>(GetParam()).name;
  const Sets sets = with(with(on_cpu().sets, exact), name == "grows" ? with(asked, grows) : asked);
  const Told one = told_of(tiny_recipe(sets, (name == "regularized" ? regularized : "") + blend)),
             here = told_of(recipe(asked));
  for (int i = 0; i < steps; ++i) {
    ASSERT_EQ(here.parts[i].size(), one.parts[i].size());
    for (std::size_t part = 0; part < one.parts[i].size(); ++part) {
      EXPECT_EQ(here.parts[i][part].name, one.parts[i][part].name);
      EXPECT_EQ(here.parts[i][part].targets, one.parts[i][part].targets);
      EXPECT_NEAR(here.parts[i][part].loss, one.parts[i][part].loss, 1e-9);
    }
  }
}

TEST_P(Losses, ChangeNothingOfWhatIsTrained) {
  const Told told = told_of(recipe(asked)), plain = told_of(recipe({}));
  for (int i = 0; i < steps; ++i) {
    EXPECT_NEAR(told.steps[i].loss, plain.steps[i].loss, 1e-12);
    EXPECT_NEAR(told.steps[i].grad_norm, plain.steps[i].grad_norm, 1e-12);
    EXPECT_TRUE(plain.steps[i].losses.empty());
  }
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all = layouts();
  const std::string data = "[[strategy]]\nplugin = 'data'\naxis = 'dp'\n",
                    context = "[[strategy]]\nplugin = 'context'\naxis = 'cp'\n";
  all.push_back({"context", "[mesh]\ncp = 2\n" + context, {}});
  all.push_back({"data_context", "[mesh]\ndp = 2\ncp = 2\n" + data + context, {}});
  all.push_back(
      {"regularized", "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n" + regularized, {}});
  all.push_back({"grows", data_parallel(2), grows});
  return all;
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Layout, Target>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Losses,
                         testing::Combine(testing::ValuesIn(all_layouts()), testing::ValuesIn(targets())),
                         name_of_case);

// Of the first step, whose weights are the same: the loss of its samples of a set is that of a step of these
// alone.
TEST(LossParts, OfASetAreWhatItHasByItself) {
  const Sets in_order = with(exact, {"data.shuffle=false", "batch.micro=1", "run.loss_by_set=true"});
  const Told told = told_of(tiny_recipe(in_order, blend));
  const std::vector<double> weights = {1, 2};
  std::int64_t samples = 0;
  for (std::int64_t number = 0; number < 8; ++number) samples += Blend(weights).place(number).set == 1;
  const Told alone = told_of(
      ragged_recipe(with(in_order, {"batch.global=" + std::to_string(samples),
                                    "run.out=" + (temporary_folder() / "alone").string(), "run.fresh=true"}),
                    ""));
  const LossGroups::Part* const ragged = find(told.parts[0], "data.blend.0");
  ASSERT_NE(ragged, nullptr);
  EXPECT_EQ(ragged->targets, alone.steps[0].targets);
  EXPECT_NEAR(ragged->loss, alone.steps[0].loss, 1e-12);
}

TEST(LossParts, WithoutTheQuestionPlansAreThoseOfBefore) {
  const Assembly plain(tiny_recipe({}, blend), plugins()),
      told(tiny_recipe({"run.loss_by_set=true"}, blend), plugins());
  EXPECT_NE(plain.fingerprint(), told.fingerprint());
  EXPECT_EQ(plain.program().find_runtime("step.losses"), none);
  const std::string text = plain.fingerprint();
  EXPECT_EQ(text.find("groups"), std::string::npos);
}

TEST(LossParts, RolesThatNobodyKnowsAreRefused) {
  try {
    const Assembly assembly(tiny_recipe({"run.loss_by_role=true"}), plugins());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("no data plugin of the recipe has roles"), std::string::npos)
        << error.what();
  }
}

TEST(LossParts, StandInTheLog) {
  const TempFolder folder;
  const Assembly assembly(tiny_recipe(with(asked, {"run.steps=2", "run.out=" + folder / "run"}), blend),
                          plugins());
  EXPECT_EQ(train(assembly, plugins(), "prun"), 0);
  std::ifstream log(folder / "run" + "/log.jsonl");
  int lines = 0;
  for (std::string line; std::getline(log, line);)
    if (line.find("\"type\":\"step\"") != std::string::npos) {
      EXPECT_NE(line.find("\"losses\":{\"data\":{\"loss\":"), std::string::npos) << line;
      EXPECT_NE(line.find("\"role.even\":{"), std::string::npos) << line;
      ++lines;
    }
  EXPECT_EQ(lines, 2);
}

}  // namespace
}  // namespace prun::test::losses_test
