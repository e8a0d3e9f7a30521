// Experts whose positions are sent to the ranks that hold them: every layout trains as one rank does wherever
// rows suffice, and a step that needs more of them is not kept and says what would have been enough.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/tallies.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/run_report.hpp"

namespace prun::test::sent_rows_test {
namespace {

using Sets = std::vector<std::string>;

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  sequence = tensor + "sequence = true\n", pipeline = "[[strategy]]\nplugin = 'pipeline'\n",
                  rep = "[[strategy]]\nplugin = 'data'\naxis = 'rep'\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";

std::string zero(int stage, const std::string& axes = "'dp'") {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\naxis = " + axes + "\n";
}

std::string sent(double rows, const std::string& axis = "'dp'") {
  return "[[strategy]]\nplugin = 'experts'\naxis = " + axis +
         "\nexchange = 'all_to_all'\nrows = " + std::to_string(rows) + "\n";
}

// All positions of a sequence at most: nothing goes beyond that.
const std::string all = sent(9);

// Models whose routers differ, one with a capacity.
const Sets plain = {"model.experts=8", "model.choices=2", "model.expert_ffn=12", "model.balance=0.02",
                    "model.router_z=0.001"},
           grouped = {"model.experts=8",        "model.choices=3",
                      "model.expert_ffn=8",     "model.router=sigmoid",
                      "model.router_bias=true", "model.router_bias_rate=0.01",
                      "model.router_groups=4",  "model.router_chosen_groups=2",
                      "model.router_scale=2.5", "model.shared_ffn=8",
                      "model.balance=0.01"},
           capped = {"model.experts=8", "model.choices=2", "model.expert_ffn=12", "model.capacity=1"};

Recipe recipe_of(const std::string& text, const Sets& model, const Sets& more = {}) {
  Sets sets = {"precision.compute=fp64", "precision.state=fp64", "batch.global=8",   "batch.micro=1",
               "model.plugin=llama",     "model.heads=4",        "model.kv_heads=2", "model.layers=2",
               "model.ffn=16",           "device.threads=1",     "device.pin=false", "optimizer.clip=1",
               "run.poison=true"};
  sets.insert(sets.end(), model.begin(), model.end());
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

class SentRows : public testing::TestWithParam<const Sets*> {
 protected:
  void equal(const std::string& text, const Sets& more = {}) const {
    SCOPED_TRACE(text);
    std::vector<std::string> exact = {"*.route.index"};
    if (GetParam() == &capped) exact.push_back("*.cap_choices.kept");
    const LayoutVerdict verdict = verify_layout(recipe_of(text, *GetParam(), more), plugins().places(),
                                                {.steps = 4, .bound = 1e-11, .exact = exact});
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
    EXPECT_TRUE(verdict.compares_numbers);
    EXPECT_LE(verdict.loss.value, 1e-14) << to_text(verdict);
  }
};

// ---------------------------------------------------------------- as one rank

TEST_P(SentRows, OverTheBatch) {
  equal("[mesh]\ndp = 2\n" + data + all);
  equal("[mesh]\ndp = 4\n" + all + data);
  equal("[mesh]\ndp = 2\n" + data + all, {"batch.micro=2"});
  equal("[mesh]\nrep = 2\ndp = 2\n" + data + rep + all);
  equal("[mesh]\ndp = 2\nrep = 2\n" + data + rep + all);
}

TEST_P(SentRows, WithStateInParts) {
  for (const int stage : {1, 2, 3}) equal("[mesh]\ndp = 2\n" + data + all + zero(stage));
  equal("[mesh]\nrep = 2\ndp = 2\n" + data + rep + all + zero(3, "['rep', 'dp']"));
}

TEST_P(SentRows, BesideWidthsInParts) {
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + tensor + all);
  equal("[mesh]\ndp = 2\ntp = 2\n" + data + all + sequence);
}

TEST_P(SentRows, OverStagesInEverySchedule) {
  const std::string axes = "[mesh]\npp = 2\ndp = 2\n" + data + all + pipeline;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) equal(axes + "schedule = '" + schedule + "'\n");
  for (const char* schedule : {"interleaved", "zb-v"})
    equal(axes + "chunks = 2\nschedule = '" + schedule + "'\n", {"model.layers=4"});
}

TEST_P(SentRows, ComputedAgainOrKeptElsewhere) {
  const std::string dp = "[mesh]\ndp = 2\n" + data + all;
  equal(dp + recomputed);
  equal(dp + recomputed + zero(3));
  equal(dp + "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['experts', 'rmsnorm']\n");
  equal(dp + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\n");
  equal(dp + zero(1) + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nactivations = 'host'\n");
}

INSTANTIATE_TEST_SUITE_P(Routers, SentRows, testing::Values(&plain, &grouped, &capped), [](const auto& test) {
  return std::string(test.param == &plain ? "softmax" : test.param == &grouped ? "sigmoid" : "capacity");
});

// ---------------------------------------------------------------- rows that are fewer than positions

// Positions of a sequence that have a choice among the experts of one of four ranks, if all choices are as
// likely: 16 (1 - C(6, 2) / C(8, 2)).
const double mean = 16 * (1 - 6.0 * 5 / (8 * 7));

// Returns what is told of a few steps: by step and layer, the rows that were needed and those that were
// planned, over the mean.
std::vector<StepTally> rows_of(const std::string& text, const Sets& more = {}) {
  return tallies_of(recipe_of(text, plain, more), 3, "block.rows");
}

const std::string over_four = "[mesh]\ndp = 4\n" + data;

TEST(RowsOf, AStepAreTheMostOfItsSequences) {
  for (const StepTally& step : rows_of(over_four + sent(1.6))) {
    ASSERT_EQ(step.numbers.size(), 4u);
    EXPECT_EQ(step.layers, 2);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const double needed = step.numbers[2 * layer] * mean;
      EXPECT_NEAR(needed, std::round(needed), 1e-9);
      EXPECT_GE(needed, mean);
      EXPECT_LE(needed, 16 + 1e-9);
      EXPECT_NEAR(step.numbers[2 * layer + 1] * mean, 12, 1e-9);
    }
  }
}

// However a step is cut into microbatches, stages and ranks beside those of experts.
TEST(RowsOf, ASequenceFollowFromItAlone) {
  const std::vector<StepTally> alone = rows_of(over_four + sent(9));
  for (const std::string& text : {over_four + sent(9) + recomputed, over_four + sent(9) + zero(2),
                                  "[mesh]\nrep = 2\ndp = 4\n" + data + rep + sent(9),
                                  "[mesh]\npp = 2\ndp = 4\n" + data + sent(9) + pipeline,
                                  "[mesh]\ndp = 4\ntp = 2\n" + data + sequence + sent(9)}) {
    const std::vector<StepTally> there = rows_of(text);
    ASSERT_EQ(there.size(), alone.size()) << text;
    for (std::size_t step = 0; step < alone.size(); ++step)
      EXPECT_EQ(there[step].numbers, alone[step].numbers) << text;
  }
  const std::vector<StepTally> at_once = rows_of(over_four + sent(9), {"batch.micro=2"});
  for (std::size_t step = 0; step < alone.size(); ++step)
    EXPECT_EQ(at_once[step].numbers, alone[step].numbers);
}

// Returns the largest factor that three steps need.
double needed_of(const std::string& text) {
  double most = 0;
  for (const StepTally& step : rows_of(text + sent(9)))
    for (std::size_t layer = 0; layer < 2; ++layer) most = std::max(most, step.numbers[2 * layer]);
  return most;
}

// Fewer rows than positions, and just as many as are needed.
TEST(RowsOf, AsManyAsAreNeededTrainAsOneRank) {
  const double needed = needed_of(over_four);
  EXPECT_LT(needed * mean, 16);
  for (const std::string& beside : {std::string(), recomputed, zero(3)}) {
    const LayoutVerdict verdict =
        verify_layout(recipe_of(over_four + sent(needed) + beside, plain), plugins().places(),
                      {.steps = 3, .bound = 1e-11, .exact = {"*.route.index"}});
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
    EXPECT_LE(verdict.loss.value, 1e-14) << to_text(verdict);
  }
}

// ---------------------------------------------------------------- a step that needs more

// What a rank knows of a step that went beyond its rows.
struct Masked {
  bool kept = true, updated = true;
  std::string said;
};

std::vector<Masked> train(const Recipe& recipe, int steps) {
  std::mutex mutex;
  std::vector<Masked> of;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<Masked> own;
    for (int step = 1; step <= steps; ++step) {
      const std::vector<double> before = parameters_of(trainer);
      const StepResult result = trainer.step();
      own.push_back({result.kept, parameters_of(trainer) != before, beyond_text(step, result)});
    }
    const std::lock_guard lock(mutex);
    if (of.empty()) of = own;
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].kept, of[i].kept);
      EXPECT_EQ(own[i].said, of[i].said);
    }
  });
  return of;
}

class BeyondRows : public testing::TestWithParam<const char*> {};

TEST_P(BeyondRows, AStepIsNotKeptAndSaysWhatIsEnough) {
  const std::string text = "[mesh]\n" + std::string(GetParam()) + data;
  const std::string beside = text.find("pp") != std::string::npos   ? pipeline + "schedule = 'zb-h1'\n"
                             : text.find("tp") != std::string::npos ? sequence
                                                                    : zero(2);
  const Sets skip = {"run.on_nonfinite=skip"};
  const double planned = std::floor(std::ceil(0.5 * mean) / mean * 100) / 100;
  for (const Masked& step : train(recipe_of(text + sent(0.5) + beside, plain, skip), 2)) {
    EXPECT_FALSE(step.kept);
    EXPECT_FALSE(step.updated);
    EXPECT_NE(step.said.find(": block."), std::string::npos) << step.said;
    EXPECT_TRUE(step.said.ends_with(detail::concat(", and ", planned, " was planned for"))) << step.said;
    const std::size_t at = step.said.find("rows = ");
    ASSERT_NE(at, std::string::npos) << step.said;
    const double enough = std::stod(step.said.substr(at + 7));
    EXPECT_GT(enough, 1);
    for (const Masked& again : train(recipe_of(text + sent(enough) + beside, plain, skip), 1)) {
      EXPECT_TRUE(again.kept) << step.said;
      EXPECT_TRUE(again.updated);
      EXPECT_EQ(again.said, "");
    }
    break;  // a step that was not kept is made anew from the next samples
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, BeyondRows,
                         testing::Values("dp = 4\n", "dp = 4\ntp = 2\n", "pp = 2\ndp = 4\n"));

// Where all tokens are one, all positions choose the same two experts.
TEST(BeyondRows, AllPositionsThatChooseAlikeNeedAllRows) {
  const std::string path = (temporary_folder() / "sent.txt").string();
  std::ofstream(path) << std::string(4096, 'a');
  const Sets alike = {"data.plugin=text", "data.path=" + path, "data.shuffle=false", "model.vocab=256",
                      "run.on_nonfinite=skip"};
  for (const StepTally& step : rows_of(over_four + sent(1), alike)) {
    EXPECT_NEAR(step.numbers[0] * mean, 16, 1e-9);
    EXPECT_NEAR(step.numbers[2] * mean, 16, 1e-9);
  }
  for (const Masked& step : train(recipe_of(over_four + sent(1), plain, alike), 2)) EXPECT_FALSE(step.kept);
  const LayoutVerdict verdict =
      verify_layout(recipe_of(over_four + sent(9), plain, alike), plugins().places(),
                    {.steps = 3, .bound = 1e-11, .exact = {"*.route.index"}});
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

TEST(BeyondRows, AStepIsNoneToCompare) {
  try {
    verify_layout(recipe_of(over_four + sent(0.5), plain), plugins().places(), 2);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("step 1: block."), std::string::npos) << said;
    EXPECT_NE(said.find("; one rank's step lacks nothing, so plan for as much"), std::string::npos) << said;
  }
}

// ---------------------------------------------------------------- what does not train

// Evaluation gathers: the loss is that of all positions, however few rows are planned.
TEST(SentRowsElsewhere, EvaluationNeedsNoRows) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const auto evaluated = [&](const std::string& text) {
    std::mutex mutex;
    double loss = 0;
    run_local_ranks(recipe_of(text + validation, plain, {"eval.every=1", "eval.batches=2"}),
                    plugins().places(), [&](Trainer& trainer) {
                      const double own = trainer.evaluate().whole.loss;
                      const std::lock_guard lock(mutex);
                      loss = own;
                    });
    return loss;
  };
  const std::string gathered = "[[strategy]]\nplugin = 'experts'\naxis = 'dp'\n";
  EXPECT_EQ(evaluated(over_four + sent(0.1)), evaluated(over_four + gathered));
  EXPECT_NEAR(evaluated(over_four + sent(0.1)), evaluated(""), 1e-13);
}

TEST(SentRowsElsewhere, FiftyStepsInBf16HaveTheSameBitsTwice) {
  const Sets narrow = {"precision.compute=bf16", "precision.state=fp32", "batch.global=4"};
  const auto trained = [&] {
    std::mutex mutex;
    std::map<std::int64_t, std::vector<double>> by_rank;
    run_local_ranks(recipe_of(over_four + sent(9), grouped, narrow), plugins().places(),
                    [&](Trainer& trainer) {
                      train_steps(trainer, 50);
                      const std::vector<double> own = parameters_of(trainer);
                      const std::lock_guard lock(mutex);
                      by_rank[trainer.assembly().rank()] = own;
                    });
    return by_rank;
  };
  EXPECT_EQ(trained(), trained());
}

// A checkpoint is of neither way.
TEST(SentRowsElsewhere, ARunGoesOnTheOtherWay) {
  const TempFolder folder;
  const auto trained = [&](const std::string& text, const Sets& more, int steps, bool saves) {
    std::mutex mutex;
    std::vector<double> losses;
    run_local_ranks(recipe_of(text, plain, more), plugins().places(), [&](Trainer& trainer) {
      const std::vector<double> own = train_steps(trainer, steps);
      if (saves) trainer.save();
      const std::lock_guard lock(mutex);
      losses = own;
    });
    return losses;
  };
  const std::string two = "[mesh]\ndp = 2\n" + data,
                    gathered = two + "[[strategy]]\nplugin = 'experts'\naxis = 'dp'\n";
  const std::vector<double> whole = trained(gathered, {}, 6, false);
  trained(two + all, {"run.out=" + (folder / "run")}, 3, true);
  const std::string from = "run.resume=" + (folder / "run");
  for (const std::string& text : {two + all, gathered, over_four + all}) {
    const std::vector<double> rest = trained(text, {from, "run.out=" + (folder / "other")}, 3, false);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i], whole[3 + i], 1e-12) << text;
  }
}

}  // namespace
}  // namespace prun::test::sent_rows_test
