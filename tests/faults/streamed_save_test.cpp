// Runs that are killed while they save beside their steps: what they left goes on to the same bits.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/durable_file.hpp"
#include "runs.hpp"

namespace prun::test::streamed_save_test {
namespace {

namespace fs = std::filesystem;

// What is saved is some times as large as what it passes through, and a save is nearly always under way.
std::vector<std::string> saving(int steps) {
  return {"run.steps=" + std::to_string(steps),
          "run.save_every=1",
          "run.keep=2",
          "run.save_memory=16MiB",
          "batch.micro=1",
          "model.layers=4",
          "model.hidden=256",
          "precision.compute=bf16",
          "precision.master=split"};
}

const std::string drive =
    "[[strategy]]\nplugin = 'offload'\noptimizer = 'nvme'\n[tier.nvme]\npaths = ['/tmp']\n";

class KilledWhileSaving : public testing::TestWithParam<std::pair<const char*, std::string>> {};

TEST_P(KilledWhileSaving, EveryResumeIsExact) {
  const auto& [layout, text] = GetParam();
  const std::string name = std::string("killed-saving-") + layout;
  constexpr int steps = 8;
  PrunRun whole({layout_file(name, text, saving(steps))});
  ASSERT_EQ(whole.process().end(), 0) << whole.output();
  const Tensors expected = saved_tensors(out_folder(name));
  std::mt19937 random(test_seed());
  int went_on = 0;
  for (int trial = 0; trial < (is_long() ? 50 : 3); ++trial) {
    const std::string file = layout_file(name + "-trial", text, saving(steps));
    fs::remove_all(out_folder(name + "-trial"));
    {
      PrunRun killed({file});
      ASSERT_TRUE(killed.process().says("step 1/")) << killed.output();
      ::usleep(static_cast<useconds_t>(random() % 1'500'000));
      for (const pid_t pid : killed.alive()) send_signal(pid, SIGKILL);
      killed.process().end();
      ASSERT_TRUE(killed.seconds_until_gone());
    }
    if (!read_latest(out_folder(name + "-trial"))) continue;  // before the first save stood
    ++went_on;
    PrunRun again({file, "--set", "run.resume=" + out_folder(name + "-trial")});
    EXPECT_EQ(again.process().end(), 0) << again.output();
    EXPECT_TRUE(saved_tensors(out_folder(name + "-trial")) == expected) << trial;
  }
  EXPECT_TRUE(went_on > 0 || !is_long());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KilledWhileSaving,
    testing::Values(std::pair<const char*, std::string>{"one", ""},
                    std::pair<const char*, std::string>{"drive", drive},
                    std::pair<const char*, std::string>{
                        "zero",
                        "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = "
                        "'zero'\nstage = 1\n"}),
    [](const auto& tested) { return std::string(tested.param.first); });

// Ctrl-C of a run that saves nothing else: through the memory that every run has.
TEST(StoppedWithoutSaves, SavesThroughTheLeast) {
  std::vector<std::string> sets = saving(1000000);
  sets[1] = "run.save_every=0";
  PrunRun run({recipe_file("stopped-saving", 1, sets)});
  ASSERT_TRUE(run.process().says("step 2/")) << run.output();
  EXPECT_GE(run.stop_and_save(), 2) << run.output();
}

}  // namespace
}  // namespace prun::test::streamed_save_test
