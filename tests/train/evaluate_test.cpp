// The loss on data that is not trained on: what it is of, that every layout finds the same, and that training
// does not notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/preflight.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::evaluate_test {
namespace {

const std::vector<std::string> exact =
    with(without_codes, {"precision.compute=fp64", "precision.state=fp64", "precision.master=state",
                         "precision.moments=state", "model.layers=4"});
const std::vector<std::string> evaluates = {"eval.every=1", "eval.batches=3"};

// The data of training, as a set of its own.
std::string validation() {
  return "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
}

Recipe recipe_with(const std::vector<std::string>& sets, const std::string& layout = {}) {
  return tiny_recipe(sets, layout + validation());
}

// Losses found at the start and after each of some steps: the same for every rank.
std::vector<double> evaluations(const Recipe& recipe, int steps) {
  std::vector<std::vector<double>> of(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<double>& losses = of[static_cast<std::size_t>(trainer.assembly().rank())];
    losses.push_back(trainer.evaluate().whole.loss);
    for (int step = 0; step < steps; ++step) {
      trainer.step();
      losses.push_back(trainer.evaluate().whole.loss);
    }
  });
  for (const std::vector<double>& losses : of) EXPECT_EQ(losses, of.front());
  return of.front();
}

double first_loss(const std::vector<std::string>& sets) {
  const Assembly assembly(tiny_recipe(sets), plugins());
  Trainer trainer(assembly, plugins());
  return trainer.step().loss;
}

// The step's loss is of the parameters before its update, and comes from the op that makes gradients too.
TEST(Evaluate, IsTheLossOfAStepOverTheSameSamples) {
  for (const char* model : {"gpt", "llama"}) {
    const std::vector<std::string> sets =
        with(exact, {"data.shuffle=false", std::string("model.plugin=") + model});
    const double expected = first_loss(sets);
    EXPECT_NEAR(evaluations(recipe_with(with(sets, {"eval.every=1", "eval.batches=1"})), 0).front(), expected,
                1e-12)
        << model;
  }
}

TEST(Evaluate, DropsNothingOut) {
  EXPECT_EQ(evaluations(recipe_with(with(evaluates, {"model.dropout=0.5"})), 0),
            evaluations(recipe_with(evaluates), 0));
}

// 20,000 tokens are 1,249 samples of 16; the last batch of 4 has one.
TEST(Evaluate, TakesEverySampleOnceWhereThereAreFewer) {
  const Assembly assembly(recipe_with({"eval.every=1", "eval.batches=1000"}), plugins());
  Trainer trainer(assembly, plugins());
  EXPECT_EQ(trainer.evaluate().whole.targets, 1249 * 16);
}

// Whose samples have uneven numbers of targets.
const std::string ragged = "[[validation]]\nplugin = 'ragged'\n";
const std::vector<std::string> by_set = with(evaluates, {"eval.by_set=true"});

// What the first evaluation of a run finds, the same on every rank.
Evaluation evaluation(const Recipe& recipe) {
  std::vector<Evaluation> of(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    of[static_cast<std::size_t>(trainer.assembly().rank())] = trainer.evaluate();
  });
  for (const Evaluation& here : of) {
    EXPECT_EQ(here.sets.size(), of.front().sets.size());
    for (std::size_t i = 0; i < here.sets.size(); ++i)
      EXPECT_EQ(here.sets[i].second.loss, of.front().sets[i].second.loss);
  }
  return of.front();
}

// Each as if it were the only one, and all together as without the question.
TEST(Evaluate, FindsTheLossOfEachSet) {
  const std::vector<std::string> sets = with(exact, by_set);
  const Evaluation both = evaluation(tiny_recipe(sets, validation() + ragged));
  EXPECT_EQ(both.whole.loss,
            evaluation(tiny_recipe(with(exact, evaluates), validation() + ragged)).whole.loss);
  ASSERT_EQ(both.sets.size(), 2u);
  const Evaluated first = evaluation(tiny_recipe(sets, validation())).whole,
                  second = evaluation(tiny_recipe(sets, ragged)).whole;
  EXPECT_EQ(both.sets[0].second.loss, first.loss);
  EXPECT_EQ(both.sets[0].second.targets, first.targets);
  EXPECT_EQ(both.sets[1].second.loss, second.loss);
  EXPECT_EQ(both.sets[1].second.targets, second.targets);
  EXPECT_NE(first.loss, second.loss);
  EXPECT_EQ(both.sets[0].first, "validation.0");
  EXPECT_EQ(both.sets[1].first, "validation.1");
}

TEST(Evaluate, AsksForNoSetWhereTheRecipeDoesNot) {
  EXPECT_TRUE(evaluation(recipe_with(evaluates)).sets.empty());
}

TEST(Evaluate, TheRecipeMustAskForIt) {
  const Assembly assembly(tiny_recipe(), plugins());
  EXPECT_EQ(assembly.evaluation(), nullptr);
}

class EvaluateIn : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe(const std::vector<std::string>& more) const {
    const auto& [layout, target] = GetParam();
    std::vector<std::string> sets = with(with({"model.layers=4"}, layout.sets), target.sets);
    return recipe_with(with(sets, more), layout.text);
  }
};

TEST_P(EvaluateIn, FindsWhatOneRankFinds) {
  const std::vector<double> one = evaluations(recipe_with(with(exact, evaluates)), 2),
                            here = evaluations(recipe(with(with(exact, evaluates), {"model.dropout=0"})), 2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(here[i], one[i], 1e-9) << i;
  EXPECT_LT(one.back(), one.front());
}

TEST_P(EvaluateIn, FindsTheLossOfEachSetThatOneRankFinds) {
  const std::vector<std::string> sets = with(exact, by_set);
  const auto& [layout, target] = GetParam();
  const Evaluation one = evaluation(tiny_recipe(sets, validation() + ragged)),
                   here =
                       evaluation(tiny_recipe(with(with(with({"model.layers=4"}, layout.sets), target.sets),
                                                   with(sets, {"model.dropout=0"})),
                                              layout.text + validation() + ragged));
  ASSERT_EQ(here.sets.size(), one.sets.size());
  for (std::size_t i = 0; i < one.sets.size(); ++i) {
    EXPECT_NEAR(here.sets[i].second.loss, one.sets[i].second.loss, 1e-9) << i;
    EXPECT_EQ(here.sets[i].second.targets, one.sets[i].second.targets) << i;
  }
}

// Losses and parameters of every rank, some of its steps ahead of the host.
std::vector<std::vector<double>> train(const Recipe& recipe, bool evaluating) {
  std::vector<std::vector<double>> of(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<double>& numbers = of[static_cast<std::size_t>(trainer.assembly().rank())];
    for (int part = 0; part < 3; ++part) {
      if (evaluating) trainer.evaluate();
      const std::vector<double> losses = train_steps(trainer, 2);
      numbers.insert(numbers.end(), losses.begin(), losses.end());
    }
    const std::vector<double> parameters = parameters_of(trainer);
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
  });
  return of;
}

TEST_P(EvaluateIn, LeavesEveryBitOfTrainingAsItIs) {
  EXPECT_EQ(train(recipe(evaluates), true), train(recipe({}), false));
}

INSTANTIATE_TEST_SUITE_P(Layouts, EvaluateIn,
                         testing::Combine(testing::ValuesIn(layouts()), testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

TEST(Evaluate, RanksThatShareOutSequencesFindTheSame) {
  const std::vector<std::string> sets = with(with(exact, on_cpu().sets), evaluates);
  const std::vector<double> alone = evaluations(recipe_with(sets), 2);
  for (const std::string method : {"gather", "ulysses"}) {
    const std::string layout =
        "[mesh]\ncp = 2\n[[strategy]]\nplugin = 'context'\nmethod = '" + method + "'\n";
    const std::vector<double> shared = evaluations(recipe_with(sets, layout), 2);
    ASSERT_EQ(shared.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-12) << method;
  }
}

// Whatever is dead is NaN, and nobody writes outside.
TEST(Evaluate, ReadsNothingThatIsNotItsOwn) {
  for (const Layout& layout : layouts()) {
    const std::vector<std::string> sets = with(with(layout.sets, on_cpu().sets), evaluates);
    const Recipe plain = recipe_with(sets, layout.text),
                 poisoned = recipe_with(with(sets, {"run.poison=true"}), layout.text);
    EXPECT_EQ(train(poisoned, true), train(plain, true)) << layout.name;
  }
}

// Every so many steps, and at the end.
TEST(Evaluate, ARunSaysWhatItFound) {
  const Recipe recipe = recipe_with({"eval.every=2", "eval.batches=2", "run.steps=5"});
  const Assembly assembly(recipe, plugins());
  ASSERT_EQ(prun::train(assembly, plugins(), ""), 0);
  std::ifstream log(recipe.text("run.out") + "/log.jsonl");
  std::vector<std::string> found;
  for (std::string line; std::getline(log, line);)
    if (line.find("\"eval_loss\"") != std::string::npos) found.push_back(line);
  ASSERT_EQ(found.size(), 3u);
  const char* const steps[] = {"\"step\":2,", "\"step\":4,", "\"step\":5,"};
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NE(found[i].find(steps[i]), std::string::npos) << found[i];
    EXPECT_NE(found[i].find("\"targets\":128,"), std::string::npos) << found[i];
  }
}

// What training adds to its loss is no part of what is evaluated.
TEST(Evaluate, ZLossAndSmoothingAreTrainingsAlone) {
  const std::string loss = "[[strategy]]\nplugin = 'loss'\nz = 0.1\nsmoothing = 0.3\n";
  EXPECT_EQ(evaluations(recipe_with(evaluates, loss), 0), evaluations(recipe_with(evaluates), 0));
  EXPECT_NE(evaluations(recipe_with(evaluates, loss), 1), evaluations(recipe_with(evaluates), 1));
}

std::vector<double> evaluated_losses(const Recipe& recipe) {
  std::ifstream log(recipe.text("run.out") + "/log.jsonl");
  std::vector<double> losses;
  constexpr std::string_view key = "\"eval_loss\":";
  for (std::string line; std::getline(log, line);)
    if (const std::size_t at = line.find(key); at != std::string::npos)
      losses.push_back(std::stod(line.substr(at + key.size())));
  return losses;
}

// The rate becomes two hundred times what it was, so that the loss rises from there on.
TEST(Evaluate, ARunKeepsItsBestCheckpointAndEndsOnceNoneIsBetter) {
  const Recipe recipe = recipe_with(
      {"run.out=" + (temporary_folder() / "best").string(), "eval.every=1", "eval.batches=2",
       "eval.keep_best=true", "eval.patience=3", "run.steps=20", "run.keep=1", "optimizer.lr=1e-2",
       "optimizer.schedule.kind=steps", "optimizer.schedule.at=[4]", "optimizer.schedule.factors=[200.0]"});
  const Assembly assembly(recipe, plugins());
  ASSERT_EQ(prun::train(assembly, plugins(), ""), 0);
  const std::vector<double> losses = evaluated_losses(recipe);
  const auto lowest = std::min_element(losses.begin(), losses.end());
  const std::int64_t step = lowest - losses.begin() + 1;
  ASSERT_LT(step, 17);
  EXPECT_EQ(losses.size(), static_cast<std::size_t>(step + 3));
  const std::filesystem::path folder = recipe.text("run.out");
  const std::optional<BestCheckpoint> best = read_best(folder);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, step);
  EXPECT_NEAR(best->loss / *lowest, 1, 1e-5);
  EXPECT_EQ(std::filesystem::canonical(folder / "best"),
            std::filesystem::canonical(checkpoint_path(folder, step)));
  EXPECT_EQ(read_manifest(folder / "best").progress.step, step);
  // It and the last one alone are left.
  EXPECT_EQ(checkpoints_in(folder).size(), 2u);
}

// The last evaluation comes behind the last step, of whatever number.
TEST(Evaluate, TheBestCheckpointMayBeThatOfTheLastEvaluation) {
  const Recipe recipe = recipe_with({"run.out=" + (temporary_folder() / "best_at_end").string(),
                                     "eval.every=3", "eval.batches=2", "eval.keep_best=true", "run.steps=4",
                                     "run.save_at_end=false", "optimizer.lr=1e-3"});
  const Assembly assembly(recipe, plugins());
  ASSERT_EQ(prun::train(assembly, plugins(), ""), 0);
  const std::vector<double> losses = evaluated_losses(recipe);
  ASSERT_EQ(losses.size(), 2u);
  ASSERT_LT(losses[1], losses[0]);
  EXPECT_EQ(read_manifest(std::filesystem::path(recipe.text("run.out")) / "best").progress.step, 4);
}

TEST(Evaluate, WhatStandsInTheWayOfTheBestCheckpointIsRefusedAtTheStart) {
  const Recipe recipe = recipe_with({"run.out=" + (temporary_folder() / "in_the_way").string(),
                                     "eval.every=1", "eval.batches=2", "eval.keep_best=true", "run.steps=2"});
  const Assembly assembly(recipe, plugins());
  const std::filesystem::path folder = recipe.text("run.out");
  for (const char* name : {"best", "best.json", ".best.new"}) {
    const std::filesystem::path place = folder / name;
    std::filesystem::create_directories(place);
    try {
      prun::train(assembly, plugins(), "");
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_TRUE(std::string(error.what()).starts_with(place.string() + " is no ")) << error.what();
    }
    EXPECT_TRUE(evaluated_losses(recipe).empty());
    EXPECT_TRUE(std::filesystem::is_empty(place));
    std::filesystem::remove(place);
  }
}

TEST(Evaluate, WhatGoesByEvaluationsNeedsSome) {
  for (const char* key : {"eval.keep_best=true", "eval.patience=2"}) try {
      const Assembly assembly(tiny_recipe({key}), plugins());
      FAIL() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("goes by evaluations, and there is none; set eval.every"),
                std::string::npos);
    }
}

TEST(Evaluate, WithoutDataForItTheRecipeIsRefused) {
  const Assembly assembly(tiny_recipe({"eval.every=2"}), plugins());
  try {
    preflight(assembly, plugins());
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot validate: the recipe names no data for it"),
              std::string::npos);
  }
}

// Exchanges that go through pinned memory know that of both programs.
TEST(Evaluate, ThroughPinnedMemoryAsWell) {
  const std::vector<std::string> sets =
      with(evaluates, {"device.plugin=cpu-async", "comm.default=ucx", "batch.micro=1", "device.delay_us=20"});
  const Recipe recipe = recipe_with(sets, data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n");
  EXPECT_EQ(train(recipe, true), train(recipe, false));
}

}  // namespace
}  // namespace prun::test::evaluate_test
