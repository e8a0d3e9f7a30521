// Experts with a capacity: every layout drops the same choices as one rank, number by number, and trains as
// it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "generate/checkpoint_use.hpp"
#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/tallies.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::capacity_test {
namespace {

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  sequence = tensor + "sequence = true\n", pipeline = "[[strategy]]\nplugin = 'pipeline'\n",
                  context = "[[strategy]]\nplugin = 'context'\n",
                  experts_over_dp = "[[strategy]]\nplugin = 'experts'\naxis = 'dp'\n",
                  experts_over_tp = "[[strategy]]\nplugin = 'experts'\naxis = 'tp'\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\naxis = 'dp'\n";
}

using Sets = std::vector<std::string>;

// So low that experts with more than the mean drop some.
const Sets by_weight = {"model.experts=8",    "model.choices=2",  "model.expert_ffn=12",
                        "model.balance=0.02", "model.capacity=1", "model.router_z=0.001"},
           by_position = {"model.experts=8",
                          "model.choices=3",
                          "model.expert_ffn=8",
                          "model.router=sigmoid",
                          "model.router_bias=true",
                          "model.router_bias_rate=0.01",
                          "model.router_normalise=false",
                          "model.shared_ffn=8",
                          "model.capacity=0.8",
                          "model.capacity_by=position"};

Recipe recipe_of(const std::string& text, const Sets& model, const Sets& more = {}) {
  Sets sets = {"precision.compute=fp64", "precision.state=fp64", "batch.global=8",   "batch.micro=1",
               "model.plugin=llama",     "model.heads=4",        "model.kv_heads=2", "model.layers=2",
               "model.ffn=16",           "device.threads=1",     "device.pin=false", "optimizer.clip=1",
               "run.poison=true"};
  sets.insert(sets.end(), model.begin(), model.end());
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

class Capacity : public testing::TestWithParam<const Sets*> {
 protected:
  void equal(const std::string& text, const Sets& more = {}) const {
    SCOPED_TRACE(text);
    const LayoutVerdict verdict =
        verify_layout(recipe_of(text, *GetParam(), more), plugins().places(),
                      {.steps = 3, .bound = 1e-10, .exact = {"*.route.index", "*.cap_choices.kept"}});
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
    EXPECT_TRUE(verdict.compares_numbers);
    EXPECT_LE(verdict.loss.value, 1e-14) << to_text(verdict);
  }
};

TEST_P(Capacity, OverTheBatch) {
  equal("[mesh]\ndp = 2\n" + data);
  equal("[mesh]\ndp = 2\n" + data + experts_over_dp);
  equal("[mesh]\ndp = 4\n" + experts_over_dp + data);
  equal("[mesh]\ndp = 2\n" + data + experts_over_dp, {"batch.micro=2"});
  equal("", {"batch.micro=4"});
}

TEST_P(Capacity, OverTheWidth) {
  equal("[mesh]\ntp = 2\n" + tensor);
  equal("[mesh]\ntp = 2\n" + sequence);
  equal("[mesh]\ntp = 2\n" + tensor + experts_over_tp);
  equal("[mesh]\ntp = 2\n" + experts_over_tp + sequence);
}

// An expert's capacity is of the whole sequence, in the order of positions.
TEST_P(Capacity, WhereSequencesAreSharedOut) {
  for (const std::string& sharing :
       {context, context + "balance = 'none'\n", context + "method = 'ulysses'\n"})
    equal("[mesh]\ncp = 2\n" + sharing);
  equal("[mesh]\ncp = 2\n" + context + "[[strategy]]\nplugin = 'experts'\naxis = 'cp'\n");
  equal("[mesh]\ndp = 2\ncp = 2\n" + data + context + experts_over_dp + zero(1) + recomputed);
}

TEST_P(Capacity, OverStages) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    equal("[mesh]\npp = 2\n" + pipeline + "schedule = '" + schedule + "'\n");
  equal("[mesh]\npp = 2\n" + pipeline + "chunks = 2\nschedule = 'zb-v'\n", {"model.layers=4"});
}

TEST_P(Capacity, OverAxesTogether) {
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_dp);
  equal("[mesh]\npp = 2\ndp = 2\n" + pipeline + data + experts_over_dp);
  equal("[mesh]\ndp = 2\npp = 2\ntp = 2\n" + data + pipeline + sequence + experts_over_tp);
}

TEST_P(Capacity, WithStateInPartsOrComputedAgain) {
  const std::string dp = "[mesh]\ndp = 2\n" + data + experts_over_dp;
  for (const int stage : {1, 2, 3}) equal(dp + zero(stage));
  equal(dp + recomputed);
  equal(dp + zero(3) + recomputed);
  equal(dp + "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['cap_choices', 'experts']\n");
}

TEST_P(Capacity, AsManyAreDroppedOnEveryLayout) {
  const std::vector<StepTally> alone = tallies_of(recipe_of("", *GetParam()), 3, "block.dropped");
  ASSERT_EQ(alone.size(), 3u);
  for (const std::string& text : {"[mesh]\ndp = 2\n" + data + experts_over_dp + recomputed,
                                  "[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_tp,
                                  "[mesh]\npp = 2\n" + pipeline, "[mesh]\ncp = 2\n" + context})
    expect_same(tallies_of(recipe_of(text, *GetParam()), 3, "block.dropped"), alone, text);
}

// One sequence a step: what goes beyond the capacity follows from the counts, before anything is dropped.
TEST_P(Capacity, WhatIsDroppedIsWhatGoesBeyondIt) {
  const Recipe recipe = recipe_of("", *GetParam(), {"batch.global=1"});
  const std::vector<StepTally> chosen = tallies_of(recipe, 4, "block.choices"),
                               dropped = tallies_of(recipe, 4, "block.dropped");
  const double choices = GetParam() == &by_weight ? 2 : 3, share = GetParam() == &by_weight ? 1 : 0.8;
  const double most = std::ceil(share * 16 * choices / 8 - 1e-9);
  ASSERT_EQ(dropped.size(), 4u);
  double all = 0;
  for (std::size_t step = 0; step < 4; ++step) {
    ASSERT_EQ(dropped[step].numbers.size(), 2u);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      double beyond = 0;
      for (std::size_t e = 0; e < 8; ++e) beyond += std::max(0.0, chosen[step].numbers[layer * 8 + e] - most);
      EXPECT_EQ(dropped[step].numbers[layer], beyond);
      all += beyond;
    }
  }
  EXPECT_GT(all, 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, Capacity, testing::Values(&by_weight, &by_position), [](const auto& test) {
  return std::string(test.param == &by_weight ? "weight" : "position");
});

std::vector<double> losses_of(const Recipe& recipe) {
  std::vector<double> losses;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) { losses = train_steps(trainer, 3); });
  return losses;
}

// An expert that takes all positions of a sequence drops none: then the numbers are those without a capacity.
TEST(CapacityOf, AllPositionsDropsNothing) {
  Sets all = by_weight, none = by_weight;
  all.push_back("model.capacity=4");
  none.push_back("model.capacity=0");
  EXPECT_EQ(losses_of(recipe_of("", all)), losses_of(recipe_of("", none)));
  EXPECT_NE(losses_of(recipe_of("", by_weight)), losses_of(recipe_of("", none)));
  for (const StepTally& tally : tallies_of(recipe_of("", all), 2, "block.dropped"))
    EXPECT_EQ(tally.numbers, std::vector<double>(2, 0));
  EXPECT_TRUE(tallies_of(recipe_of("", none), 2, "block.dropped").empty());
}

// Where all tokens are one, weights differ by rounding alone, and the first positions stay.
TEST(CapacityOf, PositionsThatAreAlikeAreDroppedAlikeEverywhere) {
  const std::string path = (temporary_folder() / "alike.txt").string();
  std::ofstream(path) << std::string(4096, 'a');
  const Sets alike = {"data.plugin=text", "data.path=" + path, "data.shuffle=false", "model.vocab=256"};
  for (const StepTally& tally : tallies_of(recipe_of("", by_weight, alike), 2, "block.dropped"))
    EXPECT_EQ(tally.numbers, std::vector<double>(2, 8 * 2 * (16 - 4)));
  for (const std::string& text :
       {"[mesh]\ntp = 2\n" + tensor, "[mesh]\ntp = 2\n" + experts_over_tp + sequence,
        "[mesh]\ndp = 2\ntp = 2\n" + data + tensor + experts_over_dp}) {
    const LayoutVerdict verdict =
        verify_layout(recipe_of(text, by_weight, alike), plugins().places(),
                      {.steps = 3, .bound = 1e-10, .exact = {"*.route.index", "*.cap_choices.kept"}});
    EXPECT_TRUE(verdict.equal()) << text << to_text(verdict);
  }
}

// Sequences that fill a batch up drop choices too, and count in nothing.
TEST(CapacityOf, PaddingIsNotCounted) {
  const Sets padded = {"batch.global=7", "batch.micro=2", "batch.pad=true"};
  const std::vector<StepTally> alone = tallies_of(recipe_of("", by_weight, padded), 2, "block.dropped"),
                               there = tallies_of(
                                   recipe_of("[mesh]\ndp = 2\n" + data + experts_over_dp, by_weight, padded),
                                   2, "block.dropped");
  ASSERT_FALSE(alone.empty());
  expect_same(there, alone, "two ranks");
}

// With so little room nearly everything would be dropped.
const Sets narrow = {"model.capacity=0.1"}, unbounded = {"model.capacity=0"};

TEST(CapacityOf, NothingIsDroppedWhereNothingIsTrained) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const auto evaluated = [&](const Sets& sets) {
    const Assembly assembly(recipe_of(validation, by_weight, with(sets, {"eval.every=1", "eval.batches=2"})),
                            plugins());
    return Trainer(assembly, plugins()).evaluate().whole.loss;
  };
  EXPECT_EQ(evaluated(narrow), evaluated(unbounded));
}

TEST(CapacityOf, NothingIsDroppedOfTextThatIsMade) {
  const TempFolder folder;
  const auto recipe = [&](const Sets& sets) {
    return recipe_of("", with(by_weight, {"optimizer.lr=0.05", "run.out=" + (folder / "run")}), sets);
  };
  const Assembly assembly(recipe(narrow), plugins());
  Trainer trainer(assembly, plugins());
  train_steps(trainer, 10);
  trainer.save();
  TextQuestion question;
  question.checkpoint = folder / "run";
  question.tokens = {5, 17, 60, 3, 3, 41};
  question.most = 20;
  const auto text = [&](const Sets& sets) {
    return text_of_checkpoint(one_text(recipe(sets), plugins()), plugins(), question, {});
  };
  EXPECT_EQ(text(narrow).size(), 20u);
  EXPECT_EQ(text(narrow), text(unbounded));
}

}  // namespace
}  // namespace prun::test::capacity_test
