// Models with experts: every layout trains as one rank does, chooses the same experts number by number, and
// counts the same choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/tallies.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::experts_test {
namespace {

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  sequence = tensor + "sequence = true\n", pipeline = "[[strategy]]\nplugin = 'pipeline'\n",
                  experts_over_dp = "[[strategy]]\nplugin = 'experts'\naxis = 'dp'\n",
                  experts_over_tp = "[[strategy]]\nplugin = 'experts'\naxis = 'tp'\n",
                  experts_over_both = "[[strategy]]\nplugin = 'experts'\naxis = ['dp', 'tp']\n",
                  heads_in_turn =
                      "[[strategy]]\nplugin = 'spread'\naxis = 'cp'\ndims = ['seq']\nops = ['heads']\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";

std::string zero(int stage, const std::string& axes = "'dp'") {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\naxis = " + axes + "\n";
}

using Sets = std::vector<std::string>;

// Models whose routers differ in all that routers can differ in.
const Sets plain = {"model.experts=8", "model.choices=2", "model.expert_ffn=12", "model.balance=0.02",
                    "model.router_z=0.001"},
           shared = {"model.experts=12",    "model.choices=4",        "model.expert_ffn=8",
                     "model.shared_ffn=16", "model.shared_gate=true", "model.router_normalise=false",
                     "model.dense_first=1"},
           grouped = {"model.experts=8",        "model.choices=3",
                      "model.expert_ffn=8",     "model.router=sigmoid",
                      "model.router_bias=true", "model.router_bias_rate=0.01",
                      "model.router_groups=4",  "model.router_chosen_groups=2",
                      "model.router_scale=2.5", "model.shared_ffn=8",
                      "model.balance=0.01"};

Recipe recipe_of(const std::string& text, const Sets& model, const Sets& more = {}) {
  Sets sets = {"precision.compute=fp64", "precision.state=fp64", "batch.global=8",   "batch.micro=1",
               "model.plugin=llama",     "model.heads=4",        "model.kv_heads=2", "model.layers=2",
               "model.ffn=16",           "device.threads=1",     "device.pin=false", "optimizer.clip=1",
               "run.poison=true"};
  sets.insert(sets.end(), model.begin(), model.end());
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

void expect_equal(const std::string& text, const Sets& model, const Sets& more = {}) {
  SCOPED_TRACE(text);
  const LayoutVerdict verdict = verify_layout(recipe_of(text, model, more), plugins().places(),
                                              {.steps = 4, .bound = 1e-10, .exact = {"*.route.index"}});
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_TRUE(verdict.compares_numbers);
}

class Experts : public testing::TestWithParam<const Sets*> {
 protected:
  void equal(const std::string& text, const Sets& more = {}) const { expect_equal(text, *GetParam(), more); }
};

// ---------------------------------------------------------------- each axis alone

TEST_P(Experts, OverTheBatch) {
  equal("[mesh]\ndp = 2\n" + data);
  equal("[mesh]\ndp = 2\n" + data + experts_over_dp);
  equal("[mesh]\ndp = 4\n" + experts_over_dp + data);
  equal("[mesh]\ndp = 2\n" + data + experts_over_dp, {"batch.micro=2"});
}

TEST_P(Experts, OverTheWidth) {
  equal("[mesh]\ntp = 2\n" + tensor);
  equal("[mesh]\ntp = 2\n" + sequence);
  equal("[mesh]\ntp = 2\n" + tensor + experts_over_tp);
  equal("[mesh]\ntp = 2\n" + experts_over_tp + sequence);
}

// Choices are counted over whole sequences, in whatever order their positions lie.
TEST_P(Experts, WhereSequencesAreSharedOut) {
  const std::string zigzag = "[[strategy]]\nplugin = 'context'\n", in_order = zigzag + "balance = 'none'\n",
                    experts_over_cp = "[[strategy]]\nplugin = 'experts'\naxis = 'cp'\n";
  for (const std::string& sharing : {zigzag, in_order}) {
    equal("[mesh]\ncp = 2\n" + sharing);
    equal("[mesh]\ncp = 2\n" + sharing + experts_over_cp);
    equal("[mesh]\ncp = 4\n" + sharing + recomputed);
    equal("[mesh]\ndp = 2\ncp = 2\n" + data + sharing + experts_over_dp + zero(1));
  }
}

TEST_P(Experts, OverTheSequence) {
  equal("[mesh]\ncp = 2\n" + heads_in_turn);
  equal("[mesh]\ncp = 2\n" + heads_in_turn + "[[strategy]]\nplugin = 'experts'\naxis = 'cp'\n");
}

TEST_P(Experts, OverStagesInEverySchedule) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    equal("[mesh]\npp = 2\n" + pipeline + "schedule = '" + schedule + "'\n");
  for (const char* schedule : {"interleaved", "zb-v"})
    equal("[mesh]\npp = 2\n" + pipeline + "chunks = 2\nschedule = '" + schedule + "'\n", {"model.layers=4"});
}

// ---------------------------------------------------------------- together

TEST_P(Experts, OverAxesTogether) {
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_dp);
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_tp);
  equal("[mesh]\ndp = 2\ntp = 2\n" + experts_over_both + data + tensor);
  equal("[mesh]\npp = 2\ndp = 2\n" + pipeline + data + experts_over_dp);
  equal("[mesh]\ndp = 2\ncp = 2\n" + data + heads_in_turn + experts_over_dp);
  equal("[mesh]\ndp = 2\npp = 2\ntp = 2\n" + data + pipeline + sequence + experts_over_dp);
}

TEST_P(Experts, WithStateInParts) {
  for (const int stage : {1, 2, 3}) {
    equal("[mesh]\ndp = 2\n" + data + zero(stage));
    equal("[mesh]\ndp = 2\n" + data + experts_over_dp + zero(stage));
    equal("[mesh]\nrep = 2\ndp = 2\n" + data + "[[strategy]]\nplugin = 'data'\naxis = 'rep'\n" +
          experts_over_dp + zero(stage, "['rep', 'dp']"));
  }
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + tensor + experts_over_tp + zero(3));
}

TEST_P(Experts, ComputedAgainOrKeptElsewhere) {
  const std::string dp = "[mesh]\ndp = 2\n" + data + experts_over_dp;
  equal(dp + recomputed);
  equal(dp +
        "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['route', 'experts', 'rmsnorm']\n");
  equal(dp + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\n");
}

INSTANTIATE_TEST_SUITE_P(Routers, Experts, testing::Values(&plain, &shared, &grouped), [](const auto& test) {
  return std::string(test.param == &plain ? "softmax" : test.param == &shared ? "shared" : "sigmoid");
});

// Of two stages, one may have the gradient of a tied table alike on every rank and the other a part of it.
TEST(ExpertStages, ATiedTableThatTwoStagesSumOtherwiseIsRefused) {
  const std::string text = "[mesh]\npp = 2\na = 2\n" + pipeline +
                           "[[strategy]]\nplugin = 'spread'\naxis = 'a'\ndims = ['ffn', 'seq']\n";
  Sets model = plain;
  model.push_back("model.dense_first=1");
  expect_equal(text, model, {"model.tied=false"});
  try {
    Assembly(recipe_of(text, model, {"model.tied=true"}), plugins());
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "cannot tie 'token' between two stages on axis 'a': its gradient is replicated in segment "
        "'embedding' "
        "and a partial sum in segment 'head'; untie the parameter, or split other dimensions over this axis");
  }
}

// ---------------------------------------------------------------- what is counted

TEST(ExpertCounts, AreThoseOfOneRankOnEveryLayout) {
  const std::vector<StepTally> alone = tallies_of(recipe_of("", plain), 3, "block.choices");
  ASSERT_EQ(alone.size(), 3u);
  for (const StepTally& tally : alone) {
    EXPECT_EQ(tally.layers, 2);
    const double positions = 8 * 16;
    for (std::size_t layer = 0; layer < 2; ++layer) {
      double sum = 0;
      for (std::size_t e = 0; e < 8; ++e) sum += tally.numbers[layer * 8 + e];
      EXPECT_EQ(sum, positions * 2);
    }
  }
  for (const std::string& layout :
       {"[mesh]\ndp = 2\n" + data + experts_over_dp,
        "[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_tp, "[mesh]\npp = 2\n" + pipeline,
        "[mesh]\ncp = 2\n" + heads_in_turn, "[mesh]\ndp = 2\n" + data + experts_over_dp + recomputed}) {
    expect_same(tallies_of(recipe_of(layout, plain), 3, "block.choices"), alone, layout);
  }
}

// Sequences that fill a batch up choose experts, and count in nothing.
TEST(ExpertCounts, PaddingIsNotCounted) {
  const Sets padded = {"batch.global=7", "batch.micro=2", "batch.pad=true"};
  const std::vector<StepTally> alone = tallies_of(recipe_of("", plain, padded), 2, "block.choices"),
                               there = tallies_of(
                                   recipe_of("[mesh]\ndp = 2\n" + data + experts_over_dp, plain, padded), 2,
                                   "block.choices");
  double sum = 0;
  for (const double count : alone[0].numbers) sum += count;
  EXPECT_EQ(sum, 2 * 7 * 16 * 2);
  expect_same(there, alone, "two ranks");
  expect_equal("[mesh]\ndp = 2\n" + data + experts_over_dp, plain, padded);
}

// The losses are means over the sequences of a step, whatever it was cut into.
TEST(ExpertCounts, UnevennessIsThatOfTheWholeStep) {
  const std::vector<StepTally> one = tallies_of(recipe_of("", plain), 1, "block.uneven"),
                               eight = tallies_of(recipe_of("", plain, {"batch.micro=8"}), 1, "block.uneven");
  ASSERT_EQ(one[0].numbers.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_GT(one[0].numbers[i], 0);
    EXPECT_NEAR(one[0].numbers[i], eight[0].numbers[i], 1e-14);
  }
  EXPECT_GE(one[0].numbers[0], 0.02 * 0.99);
}

// ---------------------------------------------------------------- what went wrong elsewhere, by its threads

// Layouts whose groups of ranks differ between experts and all else.
const std::string groups[] = {
    "[mesh]\ndp = 2\n" + data + experts_over_dp,
    "[mesh]\ndp = 4\n" + data + experts_over_dp,
    "[mesh]\ntp = 2\n" + tensor + experts_over_tp,
    "[mesh]\ndp = 2\ntp = 2\n" + data + tensor,
    "[mesh]\ndp = 2\ntp = 2\n" + data + sequence + experts_over_dp,
    "[mesh]\ndp = 2\ntp = 2\n" + experts_over_both + data + tensor,
    "[mesh]\nrep = 2\ndp = 2\n" + data + "[[strategy]]\nplugin = 'data'\naxis = 'rep'\n" + experts_over_dp,
    "[mesh]\npp = 2\ndp = 2\n" + pipeline + data + experts_over_dp};

LayoutVerdict verdict_of(const std::string& text, const Sets& more) {
  return verify_layout(recipe_of(text, plain, more), plugins().places(),
                       {.steps = 3, .bound = {}, .exact = {}});
}

// pytorch 160285, DeepSpeed 5259, Megatron-LM 5956 and megablocks 86: n times too large over n ranks of
// experts; Megatron-LM 1628: summed over the wrong ranks where widths alone are split. An optimizer that
// divides by the gradient's own size would hide a factor.
TEST(ExpertBugs, GradientsHaveNoFactorOfTheRanks) {
  for (const std::string& text : groups) {
    const LayoutVerdict verdict = verdict_of(text, {"optimizer.plugin=sgd", "optimizer.clip=0"});
    EXPECT_LE(verdict.gradient.value, 1e-14) << text << to_text(verdict);
    EXPECT_LE(verdict.parameter.value, 1e-14) << text << to_text(verdict);
  }
}

// Megatron-LM 5916: experts were left out of the norm; radixark/Megatron-LM 80: it was too small; DeepSpeed
// 8475: norms of ranks were averaged; NeMo Automodel 3816: each group clipped what all share by its own.
TEST(ExpertBugs, TheNormIsOfAllExpertsAndClipsAlikeEverywhere) {
  for (const std::string& text : groups) {
    const LayoutVerdict verdict =
        verdict_of(text, {"optimizer.plugin=sgd", "optimizer.clip=1e-3", "optimizer.lr=10"});
    EXPECT_LE(verdict.grad_norm.value, 1e-14) << text << to_text(verdict);
    EXPECT_LE(verdict.parameter.value, 1e-14) << text << to_text(verdict);
  }
}

// Megatron-LM 3672, 5047 and 2217: losses of balance that depend on dp, tp or cp. These are most of the
// router's gradient here.
TEST(ExpertBugs, LossesOfBalanceDoNotDependOnTheRanks) {
  const Sets strong = {"model.balance=5", "model.router_z=1", "optimizer.plugin=sgd", "optimizer.clip=0"};
  const std::vector<StepTally> alone = tallies_of(recipe_of("", plain, strong), 2, "block.uneven");
  for (const std::string& text :
       {"[mesh]\ndp = 2\n" + data, "[mesh]\ndp = 4\n" + data + experts_over_dp, "[mesh]\ntp = 2\n" + tensor,
        "[mesh]\ntp = 2\n" + sequence, "[mesh]\ncp = 2\n" + heads_in_turn,
        "[mesh]\ndp = 2\n" + data + recomputed}) {
    const std::vector<StepTally> there = tallies_of(recipe_of(text, plain, strong), 2, "block.uneven");
    ASSERT_EQ(there.size(), alone.size()) << text;
    for (std::size_t i = 0; i < alone.size(); ++i)
      for (std::size_t n = 0; n < alone[i].numbers.size(); ++n)
        EXPECT_NEAR(there[i].numbers[n] / alone[i].numbers[n], 1, 1e-14) << text;
    const LayoutVerdict verdict = verdict_of(text, strong);
    EXPECT_LE(verdict.gradient.value, 1e-14) << text << to_text(verdict);
  }
}

// ---------------------------------------------------------------- all positions choose the same

// Where all tokens are one, so is what stands at each position.
Sets one_token() {
  const std::string path = (temporary_folder() / "one.txt").string();
  std::ofstream(path) << std::string(4096, 'a');
  return {"data.plugin=text", "data.path=" + path, "data.shuffle=false", "model.vocab=256"};
}

// A rank whose experts nobody has chosen has no rows at all, and memory that was filled with what is no
// number.
TEST(ExpertLoads, ExpertsWithoutRowsHaveNoGradientAndNoNumberThatIsNone) {
  const std::vector<StepTally> counts = tallies_of(recipe_of("", plain, one_token()), 2, "block.choices");
  for (const StepTally& tally : counts)
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const auto first = tally.numbers.begin() + static_cast<std::ptrdiff_t>(layer * 8);
      EXPECT_EQ(std::count(first, first + 8, 0.0), 6);
      EXPECT_EQ(std::count(first, first + 8, 8.0 * 16), 2);
    }
  for (const std::string& text : {groups[0], groups[1], groups[2], groups[5], groups[0] + zero(3)})
    expect_equal(text, plain, one_token());
}

// Nothing that is added up depends on when it is computed.
TEST(ExpertLoads, FiftyStepsInBf16HaveTheSameBitsTwice) {
  for (const Sets& sets : {Sets{}, one_token()}) {
    Sets narrow = sets;
    narrow.insert(narrow.end(), {"precision.compute=bf16", "precision.state=fp32", "batch.global=4"});
    const auto train = [&] {
      std::mutex mutex;
      std::map<std::int64_t, std::vector<double>> by_rank;
      run_local_ranks(recipe_of(groups[0], grouped, narrow), plugins().places(), [&](Trainer& trainer) {
        const std::vector<double> losses = train_steps(trainer, 50);
        std::vector<double> all = parameters_of(trainer);
        all.insert(all.end(), losses.begin(), losses.end());
        const std::lock_guard lock(mutex);
        by_rank[trainer.assembly().rank()] = std::move(all);
      });
      return by_rank;
    };
    const auto once = train();
    EXPECT_EQ(once.size(), 2u);
    EXPECT_EQ(once, train());
  }
}

}  // namespace
}  // namespace prun::test::experts_test
