// Modules that predict further tokens: every layout trains them as one rank does, and evaluates as without.
#include <gtest/gtest.h>

#include <cmath>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/tallies.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::mtp_test {
namespace {

using Sets = std::vector<std::string>;

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  sequence = tensor + "sequence = true\n", pipeline = "[[strategy]]\nplugin = 'pipeline'\n",
                  context = "[[strategy]]\nplugin = 'context'\n", in_order = context + "balance = 'none'\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  offloaded = "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\n";

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\naxis = 'dp'\n";
}

// What modules have in their blocks, and what they share.
const Sets plain = {}, tied = {"model.tied=true"},
           apart = {"data.mask_documents=true", "data.end_of_text=7", "model.mtp_layers=3"},
           experts = {"model.experts=8",
                      "model.choices=2",
                      "model.expert_ffn=12",
                      "model.router=sigmoid",
                      "model.balance=0.02",
                      "model.router_bias=true",
                      "model.router_bias_rate=0.01"};

Recipe recipe_of(const std::string& text, const Sets& model, const Sets& more = {}) {
  Sets sets = {"precision.compute=fp64", "precision.state=fp64", "batch.global=8",    "batch.micro=1",
               "model.plugin=llama",     "model.heads=4",        "model.kv_heads=2",  "model.layers=2",
               "model.ffn=16",           "device.threads=1",     "device.pin=false",  "optimizer.clip=1",
               "run.poison=true",        "model.mtp_layers=2",   "optimizer.eps=1e-4"};
  sets.insert(sets.end(), model.begin(), model.end());
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

class FurtherTokens : public testing::TestWithParam<const Sets*> {
 protected:
  void equal(const std::string& text, const Sets& more = {}) const {
    SCOPED_TRACE(text);
    const LayoutVerdict verdict = verify_layout(recipe_of(text, *GetParam(), more), plugins().places(),
                                                {.steps = 3, .bound = 1e-12, .exact = {}});
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
    for (const Difference* difference : {&verdict.loss, &verdict.gradient})
      EXPECT_LE(difference->value, 1e-14) << to_text(verdict);
  }
};

TEST_P(FurtherTokens, OverEachAxis) {
  equal("[mesh]\ndp = 2\n" + data);
  equal("[mesh]\ntp = 2\n" + tensor);
  equal("[mesh]\ntp = 2\n" + sequence);
  // Tokens ahead are on another rank.
  equal("[mesh]\ncp = 2\n" + context);
  equal("[mesh]\ncp = 4\n" + in_order);
}

TEST_P(FurtherTokens, OverStagesInEverySchedule) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    equal("[mesh]\npp = 2\n" + pipeline + "schedule = '" + schedule + "'\n");
  for (const char* schedule : {"interleaved", "zb-v"})
    equal("[mesh]\npp = 2\n" + pipeline + "chunks = 2\nschedule = '" + schedule + "'\n", {"model.layers=4"});
  equal("[mesh]\npp = 4\n" + pipeline);
}

TEST_P(FurtherTokens, WithStateInParts) {
  for (const int stage : {1, 2, 3}) equal("[mesh]\ndp = 2\n" + data + zero(stage));
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + sequence + zero(3));
}

TEST_P(FurtherTokens, ComputedAgainOrKeptElsewhere) {
  equal("[mesh]\ndp = 2\n" + data + recomputed);
  equal("[mesh]\ndp = 2\n" + data + recomputed + "segments = ['block', 'head']\n");
  equal("[mesh]\ndp = 2\n" + data + "[[strategy]]\nplugin = 'recompute'\n");
  equal("[mesh]\ndp = 2\n" + data + offloaded);
}

TEST_P(FurtherTokens, OverAxesTogether) {
  equal("[mesh]\npp = 2\ndp = 2\ntp = 2\n" + pipeline + data + sequence + zero(1) + recomputed);
  equal("[mesh]\ndp = 2\ncp = 2\n" + data + context + zero(2));
}

INSTANTIATE_TEST_SUITE_P(Models, FurtherTokens, testing::Values(&plain, &tied, &apart, &experts),
                         [](const auto& test) {
                           return std::string(test.param == &plain   ? "plain"
                                              : test.param == &tied  ? "tied"
                                              : test.param == &apart ? "apart"
                                                                     : "experts");
                         });

// ---------------------------------------------------------------- what is told, and evaluated

TEST(FurtherLosses, AreThoseOfOneRankOnEveryLayout) {
  const std::vector<StepTally> alone = tallies_of(recipe_of("", apart), 2, "mtp3.loss");
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_GT(alone[0].numbers.at(0), 0.5 * std::log(64));
  for (const std::string& layout :
       {"[mesh]\ndp = 2\n" + data, "[mesh]\ntp = 2\n" + sequence, "[mesh]\npp = 2\n" + pipeline,
        "[mesh]\ncp = 2\n" + context, "[mesh]\ndp = 2\n" + data + zero(3)}) {
    const std::vector<StepTally> there = tallies_of(recipe_of(layout, apart), 2, "mtp3.loss");
    ASSERT_EQ(there.size(), alone.size());
    for (std::size_t step = 0; step < alone.size(); ++step)
      EXPECT_NEAR(there[step].numbers.at(0), alone[step].numbers.at(0), 1e-13) << layout;
  }
}

double evaluated(const std::string& layout, const Sets& more) {
  double loss = 0;
  Sets sets = {"data.validation=0.2", "eval.every=1", "eval.batches=2", "model.mtp_layers=0"};
  sets.insert(sets.end(), more.begin(), more.end());
  run_local_ranks(recipe_of(layout, plain, sets), plugins().places(), [&](Trainer& trainer) {
    const double found = trainer.evaluate().whole.loss;
    if (trainer.assembly().rank() == 0) loss = found;
  });
  return loss;
}

TEST(FurtherLosses, AreNoPartOfAnEvaluation) {
  for (const std::string& layout : {std::string(), "[mesh]\npp = 2\n" + pipeline,
                                    "[mesh]\ntp = 2\n" + sequence, "[mesh]\ndp = 2\n" + data + zero(3)})
    EXPECT_EQ(evaluated(layout, {}), evaluated(layout, {"model.mtp_layers=2"})) << layout;
}

}  // namespace
}  // namespace prun::test::mtp_test
