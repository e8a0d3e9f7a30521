// A batch that grows: which size which step has, that a run is the one that somebody makes by hand who stops,
// changes batch.global and goes on, and that nothing else notices.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "plan/proof/check_plan.hpp"
#include "search/settled_recipe.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::ramp_test {
namespace {

using Sets = std::vector<std::string>;

// ---------------------------------------------------------------- sizes

Sets even(std::int64_t start, std::int64_t increment, std::int64_t samples) {
  return {"batch.ramp.start=" + std::to_string(start), "batch.ramp.increment=" + std::to_string(increment),
          "batch.ramp.samples=" + std::to_string(samples)};
}

BatchRamp ramp_of(const Sets& sets) { return BatchRamp::of(tiny_recipe(sets)); }

// Megatron's RampupBatchsizeNumMicroBatchesCalculator.
std::int64_t megatrons(std::int64_t start, std::int64_t increment, std::int64_t samples, std::int64_t global,
                       std::int64_t consumed) {
  if (consumed > samples) return global;
  const double each = static_cast<double>(samples) / static_cast<double>((global - start) / increment);
  return start + static_cast<std::int64_t>(static_cast<double>(consumed) / each) * increment;
}

TEST(BatchRamp, HasTheSizesOfMegatron) {
  const std::int64_t global = 64;
  for (const auto& [start, increment, samples] :
       {std::array<std::int64_t, 3>{16, 16, 300}, {32, 8, 1000}, {4, 4, 7}, {60, 1, 1024}}) {
    const BatchRamp ramp = ramp_of(with(even(start, increment, samples), {"batch.global=64"}));
    for (std::int64_t consumed = 0; consumed < samples + 10; ++consumed)
      EXPECT_EQ(ramp.global_at(consumed), megatrons(start, increment, samples, global, consumed)) << consumed;
  }
}

TEST(BatchRamp, HasTheSizesThatAreListedUpToTheirSteps) {
  const BatchRamp ramp = ramp_of({"batch.global=16", "batch.ramp.sizes=[4, 8]", "batch.ramp.until=[3, 5]"});
  std::vector<std::int64_t> sizes;
  for (std::int64_t samples = 0, step = 0; step < 7; ++step, samples += sizes.back())
    sizes.push_back(ramp.global_at(samples));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 4, 8, 8, 16, 16}));
  EXPECT_EQ(ramp.text(), "4 sequences a step, 8 from step 4 on, 16 from step 6 on");
}

// Step by step as a run goes, whatever is left over of a size.
TEST(BatchRamp, CountsStepsAsARunDoes) {
  for (const Sets& sets : {even(4, 4, 101), even(12, 4, 9), Sets{}}) {
    const BatchRamp ramp = ramp_of(with(sets, {"batch.global=16"}));
    std::int64_t samples = 0;
    for (std::int64_t step = 1; step < 40; ++step) {
      EXPECT_EQ(ramp.steps_for(samples), step - 1);
      EXPECT_EQ(ramp.steps_for(samples + 1), step);
      const BatchRamp::Stretch* last = nullptr;
      const std::vector<BatchRamp::Stretch> stretches = ramp.stretches();
      for (const BatchRamp::Stretch& stretch : stretches)
        if (stretch.first_step <= step) last = &stretch;
      ASSERT_NE(last, nullptr);
      EXPECT_EQ(last->global, ramp.global_at(samples)) << step;
      samples += ramp.global_at(samples);
    }
  }
}

TEST(BatchRamp, OfNoneAllStepsAreFull) {
  EXPECT_TRUE(ramp_of({}).rungs().empty());
  EXPECT_EQ(ramp_of({}).global_at(0), 4);
  const Recipe steady = without_ramp(tiny_recipe(with(even(1, 1, 9), {"batch.micro=1"})));
  EXPECT_TRUE(BatchRamp::of(steady).rungs().empty());
}

struct Refused {
  Sets sets;
  std::string says;
};

TEST(BatchRamp, WhatCannotBeClimbedIsRefusedInOneSentence) {
  const std::vector<Refused> all = {
      {{"batch.ramp.start=2"}, "batch.ramp.start = 2 needs batch.ramp.increment"},
      {even(8, 1, 10), "batch.ramp.start = 8 is to grow to batch.global = 8, which is not more"},
      {even(2, 4, 10),
       "from batch.ramp.start = 2 to batch.global = 8 are 6 sequences, no multiple of "
       "batch.ramp.increment = 4; take one that divides 6"},
      {even(3, 1, 10),
       "batch.ramp comes to steps of 3 sequences, no multiple of batch.micro = 2 x 1 rank = 2; "
       "let all its sizes be multiples of 2, or set batch.pad = true"},
      {{"batch.ramp.increment=2"}, "are for a ramp from batch.ramp.start on"},
      {{"batch.ramp.sizes=[2, 4]", "batch.ramp.until=[3]"}, "has 2 sizes and batch.ramp.until 1 steps"},
      {{"batch.ramp.sizes=[2, 4]", "batch.ramp.until=[3, 3]"}, "the steps of batch.ramp.until go up"},
      {{"batch.ramp.sizes=[10]", "batch.ramp.until=[3]"},
       "batch.ramp.sizes has 10, and a step has from 1 to"},
      {with(even(2, 2, 10), {"batch.ramp.sizes=[2]"}), "leave one of the two out"},
      {with(even(2, 2, 10), {"batch.interleave=2"}), "batch.ramp comes to steps of 1 microbatch, and"}};
  for (const Refused& refused : all) {
    const Recipe recipe = tiny_recipe(with({"batch.global=8", "batch.micro=2"}, refused.sets));
    try {
      const Assembly assembly(recipe, plugins());
      ADD_FAILURE() << refused.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find(refused.says), std::string::npos) << error.what();
    }
  }
}

TEST(BatchRamp, SizesAreMultiplesOfWhatAllRanksTakeAtOnce) {
  const Recipe recipe =
      tiny_recipe(with(even(2, 2, 10), {"batch.global=8", "batch.micro=1"}), data_parallel(4));
  try {
    const Assembly assembly(recipe, plugins());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no multiple of batch.micro = 1 x 4 data-parallel ranks = 4"),
              std::string::npos)
        << error.what();
  }
}

TEST(BatchRamp, AScheduleThatCannotDoASizeSaysWhich) {
  const std::string interleaved =
      "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = 'interleaved'\nchunks = "
      "2\n";
  try {
    const Assembly assembly(
        tiny_recipe(with(even(1, 1, 10), {"batch.global=4", "batch.micro=1", "model.layers=4"}), interleaved),
        plugins());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch.ramp comes to steps of 1 sequences: "), std::string::npos)
        << error.what();
  }
}

// Samples of 2.5 epochs, in as many steps as they take while the batch grows.
TEST(BatchRamp, EpochsCountTheStepsOfTheRamp) {
  const Recipe recipe =
      tiny_recipe(with(even(4, 4, 100), {"batch.global=16", "run.epochs=2.5", "run.steps=99999"}));
  const RunLength length = with_run_length(recipe, plugins());
  const std::int64_t steps = length.recipe.integer("run.steps");
  const BatchRamp ramp = BatchRamp::of(recipe);
  std::int64_t samples = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    EXPECT_LT(static_cast<double>(samples), 2.5 * 1249);
    samples += ramp.global_at(samples);
  }
  EXPECT_GE(static_cast<double>(samples), 2.5 * 1249);
}

// ---------------------------------------------------------------- runs

constexpr int steps = 6;
const Sets grows = {"batch.ramp.sizes=[2, 4]", "batch.ramp.until=[2, 3]"};
const Sets small = {"model.layers=4", "model.hidden=16", "model.ffn=32", "batch.global=8"};
const Sets exact = with(without_codes, {"precision.compute=fp64", "precision.state=fp64",
                                        "precision.master=state", "precision.moments=state"});

// What a run leaves: its losses, and what it saved last.
struct Left {
  std::vector<double> losses;
  std::map<std::string, std::vector<std::byte>> saved;
};

class Ramp : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  static Recipe recipe(const std::string& out, const Sets& more) {
    const auto& [layout, target] = GetParam();
    return of(layout, target, out, more);
  }
  static Recipe of(const Layout& layout, const Target& target, const std::string& out, const Sets& more) {
    const Sets sets = with(with(with(with(small, {"run.out=" + out}), layout.sets), target.sets), more);
    return tiny_recipe(sets, layout.text + "[[validation]]\nplugin = 'ragged'\n");
  }
  // So many steps more, and a save.
  static std::vector<double> train(const Recipe& recipe, int more) {
    std::vector<double> losses;
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      const std::vector<double> own = train_steps(trainer, more);
      trainer.save();
      if (trainer.assembly().rank() == 0) losses = own;
    });
    return losses;
  }
  std::string out(const std::string& name) const { return folder_ / name; }
  static std::string at(const std::string& out, int step) {
    return out + "/step-0000000" + std::to_string(step);
  }

  const TempFolder folder_;
};

// Two steps of 2, one of 4 and three of 8, each of a run that goes on from the one before.
TEST_P(Ramp, IsTheRunThatOneMakesByHand) {
  const std::string ramp = out("ramp"), hand = out("hand");
  const std::vector<double> losses = train(recipe(ramp, grows), steps);
  std::vector<double> by_hand = train(recipe(hand, {"batch.global=2"}), 2);
  const auto go_on = [&](const char* global, int more) {
    const std::vector<double> next = train(recipe(hand, {global, "run.resume=" + hand}), more);
    by_hand.insert(by_hand.end(), next.begin(), next.end());
  };
  go_on("batch.global=4", 1);
  go_on("batch.global=8", 3);
  EXPECT_EQ(losses, by_hand);
  EXPECT_TRUE(saved_in(at(ramp, steps)) == saved_in(at(hand, steps)));
}

TEST_P(Ramp, GoesOnFromEveryStepOfIt) {
  const std::string whole = out("whole");
  const std::vector<double> losses = train(recipe(whole, grows), steps);
  for (const int step : {1, 2, 4}) {
    const std::string here = out("from" + std::to_string(step));
    train(recipe(here, grows), step);
    const std::vector<double> rest = train(recipe(here, with(grows, {"run.resume=" + here})), steps - step);
    EXPECT_EQ(rest, std::vector<double>(losses.begin() + step, losses.end())) << step;
    EXPECT_TRUE(saved_in(at(here, steps)) == saved_in(at(whole, steps))) << step;
    std::filesystem::remove_all(here);
  }
}

TEST_P(Ramp, ComputesWhatOneRankDoes) {
  const Sets more = with(with(exact, grows), {"model.dropout=0"});
  const std::vector<double> one = train(of({"one", "", {}}, on_cpu(), out("one"), more), steps),
                            here = train(recipe(out("here"), more), steps);
  for (int i = 0; i < steps; ++i) EXPECT_NEAR(here[i], one[i], 1e-9) << i;
}

// In the memory of the full step, between steps that have another plan.
TEST_P(Ramp, DoesNotNoticeEvaluations) {
  const std::vector<double> losses = train(recipe(out("plain"), grows), steps);
  std::vector<double> own, evaluated;
  run_local_ranks(recipe(out("evaluates"), with(grows, {"eval.every=1", "eval.batches=1"})),
                  plugins().places(), [&](Trainer& trainer) {
                    std::vector<double> mine;
                    for (int step = 0; step < steps; ++step) {
                      mine.push_back(trainer.step().loss);
                      trainer.evaluate();
                    }
                    if (trainer.assembly().rank() == 0) own = mine;
                  });
  EXPECT_EQ(own, losses);
}

// It is read while steps of other plans overwrite what it has read.
TEST_P(Ramp, ASaveGoesOnOverTheEndOfASize) {
  const std::string beside = out("beside"), apart = out("apart");
  train(recipe(apart, grows), 2);
  run_local_ranks(recipe(beside, with(grows, {"run.save_every=2", "run.save_memory=16MiB"})),
                  plugins().places(), [&](Trainer& trainer) {
                    train_steps(trainer, 2);
                    trainer.begin_save();
                    train_steps(trainer, 3);
                    trainer.finish_save();
                  });
  EXPECT_TRUE(saved_in(at(beside, 2)) == saved_in(at(apart, 2)));
}

TEST_P(Ramp, PlansAreProven) {
  const Assembly assembly(recipe(out("plan"), with(grows, {"run.save_every=3"})), plugins());
  ASSERT_EQ(assembly.other_steps().size(), 2u);
  for (const StepPlans& ramp : assembly.other_steps()) {
    for (std::size_t i = 0; i < ramp.plans.size(); ++i) {
      const BaseProgram full{assembly.program(), assembly.plans()[i]};
      check_over(assembly.program(), ramp.plans[i], full);
      Plan moved = ramp.plans[i];
      for (PlannedFunction& function : moved.functions)
        for (PlannedStep& step : function.steps)
          for (PlannedOperand& operand : step.operands)
            if (operand.value != none && operand.address.region == Region::state)
              operand.address.offset += 64;
      EXPECT_THROW(check_over(assembly.program(), moved, full), Error);
    }
    EXPECT_LT(ramp.plans.front().calls.size(), assembly.plan().calls.size());
  }
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all = layouts();
  all.push_back({"offload", offloaded(true, true, true), {"batch.order=breadth_first"}});
  all.push_back({"offload_zero",
                 "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
                 "[[strategy]]\nplugin = 'zero'\nstage = 3\n" +
                     offloaded(),
                 {}});
  all.push_back({"interleaved", "", {"batch.interleave=2"}});
  return all;
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Layout, Target>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Ramp,
                         testing::Combine(testing::ValuesIn(all_layouts()), testing::ValuesIn(targets())),
                         name_of_case);

// What is read too early, or written outside, would be NaN.
INSTANTIATE_TEST_SUITE_P(Poisoned, Ramp,
                         testing::Combine(testing::Values(Layout{
                                              "poison", data_and_zero, {"run.poison=true"}}),
                                          testing::Values(on_cpu())),
                         name_of_case);

// ---------------------------------------------------------------- the rest

// The same plan pads the smaller sizes.
TEST(RampAlone, PadsSizesThatDoNotDivide) {
  const Sets more = with(exact, {"batch.global=8", "batch.micro=4", "batch.pad=true"});
  const Sets ramp = {"batch.ramp.sizes=[5, 7]", "batch.ramp.until=[2, 4]"};
  const Assembly assembly(tiny_recipe(with(more, ramp)), plugins());
  EXPECT_TRUE(assembly.other_steps().empty());
  Trainer trainer(assembly, plugins());
  const Assembly other(tiny_recipe(with(with(more, ramp), {"batch.micro=1"})), plugins());
  Trainer one_by_one(other, plugins());
  const std::vector<double> losses = train_steps(trainer, 6), expected = train_steps(one_by_one, 6);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-12) << i;
  EXPECT_EQ(trainer.progress().samples, 5 + 5 + 7 + 7 + 8 + 8);
}

TEST(RampAlone, GoesOnInAnotherLayout) {
  const TempFolder folder;
  const auto recipe = [&](const std::string& name, const std::string& layout, const Sets& more) {
    return tiny_recipe(with(with(with(exact, grows), {"batch.global=8", "batch.micro=1", "device.threads=1",
                                                      "comm.default=meet", "run.out=" + folder / name}),
                            more),
                       layout);
  };
  const std::string zero = data_and_zero,
                    pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n";
  std::vector<double> through, resumed;
  const auto train = [&](const Recipe& of, int more, std::vector<double>& losses) {
    run_local_ranks(of, plugins().places(), [&](Trainer& trainer) {
      const std::vector<double> own = train_steps(trainer, more);
      trainer.save();
      if (trainer.assembly().rank() == 0) losses.insert(losses.end(), own.begin(), own.end());
    });
  };
  train(recipe("through", "", {}), steps, through);
  train(recipe("zero", zero, {}), 1, resumed);
  train(recipe("pipeline", pipeline, {"run.resume=" + folder / "zero"}), 2, resumed);
  train(recipe("one", "", {"run.resume=" + folder / "pipeline"}), 3, resumed);
  ASSERT_EQ(resumed.size(), through.size());
  for (std::size_t i = 0; i < through.size(); ++i) EXPECT_NEAR(resumed[i], through[i], 1e-9) << i;
}

TEST(RampAlone, ARecipeWithoutOneHasThePlansItHad) {
  const Assembly plain(tiny_recipe({"batch.micro=1"}), plugins()),
      grown(tiny_recipe(with(even(1, 1, 10), {"batch.micro=1"})), plugins());
  EXPECT_TRUE(plain.other_steps().empty());
  EXPECT_EQ(grown.other_steps().size(), 3u);
  EXPECT_TRUE(grown.fingerprint().starts_with(plain.fingerprint()));
  EXPECT_NE(grown.fingerprint(), plain.fingerprint());
}

// The whole run, with its log.
TEST(RampAlone, TheLogHasTheTokensOfEachStep) {
  const TempFolder folder;
  const Assembly assembly(tiny_recipe(with(grows, {"batch.global=8", "batch.micro=1", "run.steps=5",
                                                   "run.out=" + folder / "run"})),
                          plugins());
  EXPECT_EQ(train(assembly, plugins(), "prun"), 0);
  std::ifstream log(folder / "run" + "/log.jsonl");
  std::vector<std::int64_t> tokens;
  int told = 0;
  for (std::string line; std::getline(log, line);) {
    if (const std::size_t at = line.find("\"tokens\":"); at != std::string::npos)
      tokens.push_back(std::stoll(line.substr(at + 9)));
    told += line.find("batch.ramp: from step ") != std::string::npos;
  }
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{32, 32, 64, 128, 128}));
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace prun::test::ramp_test
