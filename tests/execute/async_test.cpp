// The device cpu-async runs the plans of the device cpu and gives the same bits, whatever its delays and
// however shallow its queues are; and what goes wrong on it ends the run.
#include <gtest/gtest.h>

#include <fstream>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::async_test {
namespace {

class OnAsync : public testing::TestWithParam<Layout> {
 protected:
  // Losses and parameters of every rank.
  std::vector<std::vector<double>> run_on(const Target& target) const {
    return run_ranks(
        tiny_recipe(with(with({"model.layers=4"}, GetParam().sets), target.sets), GetParam().text), 4);
  }
};

TEST_P(OnAsync, TheBitsAreThoseOfTheCpu) {
  const std::vector<std::vector<double>> expected = run_on(on_cpu());
  EXPECT_EQ(run_on(on_async()), expected);
  EXPECT_EQ(run_on(on_async({"device.delay_us=50", "device.seed=7"})), expected);
  // Stages hand each other microbatches before they wait: the least that these schedules end with.
  const bool shallow = GetParam().text.find("pipeline") == std::string::npos;
  EXPECT_EQ(run_on(on_async({shallow ? "device.depth=1" : "device.depth=3", "device.delay_us=50"})),
            expected);
}

// By a comm plugin for the host's memory, which is not where the values are.
TEST_P(OnAsync, ThroughPinnedMemoryAsWell) {
  const std::vector<std::string> over_ucx = {"comm.default=ucx", "device.threads=1", "batch.micro=1"};
  const Target cpu{"cpu", over_ucx},
      async{"async", {"device.plugin=cpu-async", "comm.default=ucx", "batch.micro=1", "device.delay_us=20"}};
  EXPECT_EQ(run_on(async), run_on(cpu));
}

// And one of which three steps are at work at a time.
std::vector<Layout> and_stashed() {
  std::vector<Layout> all = layouts_and_delayed();
  all.push_back({"stashed",
                 "[mesh]\npp = 3\n[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\n",
                 {"batch.micro=1", "batch.global=1", "optimizer.clip=0", "model.tied=false"}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, OnAsync, testing::ValuesIn(and_stashed()),
                         [](const auto& tested) { return tested.param.name; });

// Both ways: what the one device saved, the other goes on with.
TEST(Async, ACheckpointGoesFromDeviceToDevice) {
  const std::string out = "run.out=" + (temporary_folder() / "async-save").string();
  std::vector<double> straight;
  {
    const Assembly assembly(tiny_recipe({"device.threads=1"}), plugins());
    Trainer trainer(assembly, plugins());
    straight = train_steps(trainer, 4);
  }
  std::vector<double> losses;
  {
    const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", out}), plugins());
    Trainer trainer(assembly, plugins());
    losses = train_steps(trainer, 2);
    trainer.save();
  }
  const Assembly assembly(
      tiny_recipe({"device.threads=1", "run.resume=" + (temporary_folder() / "async-save").string()}),
      plugins());
  Trainer trainer(assembly, plugins());
  for (double loss : train_steps(trainer, 2)) losses.push_back(loss);
  EXPECT_EQ(losses, straight);
}

std::string failure_of(const Recipe& recipe) {
  try {
    run_ranks(recipe, 6);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing failed";
}

TEST(Async, ADelayedFailureEndsTheStepAndSaysWhatItWas) {
  for (const char* queue : {"compute", "copy"})
    EXPECT_NE(failure_of(tiny_recipe({"device.plugin=cpu-async", "device.fail_after=3",
                                      std::string("device.fail_queue=") + queue}))
                  .find("injected failure"),
              std::string::npos)
        << queue;
}

// Steps that a device has done before it fails, by what its compute queue still did.
int steps_before_failure(int fail_after, bool ahead) {
  const Assembly assembly(
      tiny_recipe({"device.plugin=cpu-async", "device.fail_after=" + std::to_string(fail_after),
                   "device.fail_queue=compute"}),
      plugins());
  Trainer trainer(assembly, plugins());
  try {
    if (ahead) trainer.run(50, [](const StepResult&) {});
    for (int step = 0; step < 50; ++step) trainer.step();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("injected failure"), std::string::npos) << error.what();
  }
  return static_cast<int>(trainer.progress().step);
}

// What goes wrong in the step behind is not its own.
TEST(Async, AStepThatIsDoneCountsWhateverBecomesOfTheOneBehindIt) {
  int farthest = 0;
  for (int fail_after = 40; fail_after < 1000; fail_after += 61) {
    const int steps = steps_before_failure(fail_after, false);
    EXPECT_EQ(steps_before_failure(fail_after, true), steps) << fail_after;
    farthest = std::max(farthest, steps);
  }
  EXPECT_GE(farthest, 2);
}

TEST(Async, AFailureOfOneRankEndsTheOthersInTheMiddleOfAnExchange) {
  const std::string why =
      failure_of(tiny_recipe({"device.plugin=cpu-async", "comm.default=meet-async", "device.fail_after=40",
                              "device.fail_queue=compute", "batch.micro=1"},
                             data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n"));
  EXPECT_TRUE(why.find("injected failure") != std::string::npos || why.find("aborted") != std::string::npos)
      << why;
}

TEST(Async, PoisonNeedsMemoryThatTheHostCanWrite) {
  EXPECT_NE(failure_of(tiny_recipe({"device.plugin=cpu-async", "run.poison=true"})).find("run.poison"),
            std::string::npos);
}

// One axis on streams, the other through pinned memory.
TEST(Async, AxesMayHaveDifferentCommPlugins) {
  const Layout layout = layouts().back();
  const auto run = [&](const std::vector<std::string>& sets) {
    return run_ranks(tiny_recipe(with(layout.sets, sets), layout.text), 4);
  };
  EXPECT_EQ(run({"device.plugin=cpu-async", "comm.dp=ucx", "comm.tp=meet-async", "batch.micro=1"}),
            run({"device.threads=1", "comm.dp=ucx", "comm.tp=meet", "batch.micro=1"}));
}

TEST(Async, ACommPluginThatEnqueuesNeedsQueuesForIt) {
  EXPECT_NE(failure_of(tiny_recipe({"comm.default=meet-async", "batch.micro=1"}, data_parallel(2)))
                .find("only enqueues"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test::async_test
