// The device cpu-async runs the plans of the device cpu and gives the same bits, whatever its delays and
// however shallow its queues are; and what goes wrong on it ends the run.
#include <gtest/gtest.h>

#include <fstream>

#include "support/assembly_fixture.hpp"
#include "train/local_ranks.hpp"

namespace prun::test {
namespace {

struct Layout {
  const char* name;
  const char* text;
  std::vector<std::string> sets;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

const char* const dp2 = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n";
const std::string zero2 = std::string(dp2) + "[[strategy]]\nplugin = 'zero'\nstage = 2\n",
                  zero3 = std::string(dp2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n",
                  tensor = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\nsequence = true\n",
                  pipeline =
                      "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '1f1b'\n",
                  zb = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = 'zb-v'\n"
                       "chunks = 2\n";

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

class OnAsync : public testing::TestWithParam<Layout> {
 protected:
  // Losses and parameters of every rank.
  std::vector<std::vector<double>> on_cpu() const {
    return run_ranks(recipe({"device.threads=1", "comm.default=meet"}), 4);
  }
  std::vector<std::vector<double>> on_async(const std::vector<std::string>& sets) const {
    return run_ranks(recipe(with({"device.plugin=cpu-async", "comm.default=meet-async"}, sets)), 4);
  }

 private:
  Recipe recipe(const std::vector<std::string>& sets) const {
    return tiny_recipe(with(with({"model.layers=4", "batch.micro=1"}, GetParam().sets), sets),
                       GetParam().text);
  }
};

TEST_P(OnAsync, TheBitsAreThoseOfTheCpu) {
  const std::vector<std::vector<double>> expected = on_cpu();
  EXPECT_EQ(on_async({}), expected);
  EXPECT_EQ(on_async({"device.delay_us=50", "device.seed=7"}), expected);
  // Stages hand each other microbatches before they wait: queues must take more than one piece of work.
  const bool shallow = std::string(GetParam().text).find("pipeline") == std::string::npos;
  EXPECT_EQ(on_async({shallow ? "device.depth=1" : "device.depth=64", "device.delay_us=50"}), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OnAsync,
    testing::Values(Layout{"one", "", {}}, Layout{"recompute", "[[strategy]]\nplugin = 'recompute'\n", {}},
                    Layout{"bf16", "", {"precision.compute=bf16"}}, Layout{"data", dp2, {}},
                    Layout{"zero2", zero2.c_str(), {}}, Layout{"zero3", zero3.c_str(), {"model.dropout=0.1"}},
                    Layout{"tensor", tensor.c_str(), {}}, Layout{"pipeline", pipeline.c_str(), {}},
                    Layout{"zb_v", zb.c_str(), {}}),
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

TEST(Async, AFailureOfOneRankEndsTheOthersInTheMiddleOfAnExchange) {
  const std::string why =
      failure_of(tiny_recipe({"device.plugin=cpu-async", "comm.default=meet-async", "device.fail_after=40",
                              "device.fail_queue=compute", "batch.micro=1"},
                             zero3));
  EXPECT_TRUE(why.find("injected failure") != std::string::npos || why.find("aborted") != std::string::npos)
      << why;
}

TEST(Async, PoisonNeedsMemoryThatTheHostCanWrite) {
  EXPECT_NE(failure_of(tiny_recipe({"device.plugin=cpu-async", "run.poison=true"})).find("run.poison"),
            std::string::npos);
}

// What moves host memory cannot move this device's.
TEST(Async, ACommPluginForHostMemoryIsRefused) {
  EXPECT_NE(failure_of(tiny_recipe({"device.plugin=cpu-async", "comm.default=meet", "batch.micro=1"}, dp2))
                .find("does not move device memory"),
            std::string::npos);
  EXPECT_NE(failure_of(tiny_recipe({"comm.default=meet-async", "batch.micro=1"}, dp2)).find("only enqueues"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test
