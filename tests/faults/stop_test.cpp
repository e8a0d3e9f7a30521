// SIGINT and SIGTERM to the launcher: all ranks stop after the same step, one checkpoint is written, and what
// goes on from there ends with the same bits as a run that nobody disturbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "runs.hpp"

namespace prun::test {
namespace {

constexpr int ranks = 3;
const std::vector<std::string> sets = {"run.steps=500", "run.save_every=500"};

int checkpoints_in(const std::string& out) {
  const auto entries = std::filesystem::directory_iterator(out);
  return static_cast<int>(std::count_if(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().filename().string().starts_with("step-");
  }));
}

TEST(Stop, SavesOnceAndResumesToTheSameBits) {
  PrunRun whole({recipe_file("whole", ranks, sets)});
  ASSERT_EQ(whole.process().end(60), 0) << whole.output();
  const Tensors expected = saved_tensors(out_folder("whole"));
  ASSERT_FALSE(expected.empty());
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "stopped-" + std::to_string(signal);
    const std::string recipe = recipe_file(name, ranks, sets);
    PrunRun stopped({recipe});
    ASSERT_TRUE(stopped.process().says("step 20/")) << stopped.output();
    stopped.process().signal(signal);
    ASSERT_EQ(stopped.process().end(), 128 + signal) << stopped.output();
    EXPECT_TRUE(stopped.seconds_until_gone(10));
    EXPECT_EQ(checkpoints_in(out_folder(name)), 1);
    EXPECT_EQ(count_of(stopped.output(), "stopped at step "), 1) << stopped.output();
    EXPECT_EQ(count_of(stopped.output(), "saved "), 1) << stopped.output();
    EXPECT_EQ(count_of(stopped.output(), "prun: rank"), 0) << stopped.output();
    const int step = stopped.process().number_after("stopped at step ");
    EXPECT_LT(step, 500);
    EXPECT_EQ(saved_tensors(out_folder(name)).size(), expected.size());
    EXPECT_NE(saved_tensors(out_folder(name)), expected);

    PrunRun resumed({recipe, "--set", "run.resume=" + out_folder(name)});
    ASSERT_EQ(resumed.process().end(60), 0) << resumed.output();
    EXPECT_TRUE(contains(resumed.output(), "step " + std::to_string(step + 1) + "/500"));
    EXPECT_FALSE(contains(resumed.output(), "step " + std::to_string(step) + "/500"));
    EXPECT_TRUE(saved_tensors(out_folder(name)) == expected) << "other bits after " << step << " steps";
  }
}

// Before there is anything to save.
TEST(Stop, AtAnyMomentOfTheStart) {
  const std::string recipe = recipe_file("stop-at-start", ranks, {"run.steps=1000000"});
  for (int trial = 0; trial < (is_long() ? 40 : 8); ++trial) {
    PrunRun run({recipe});
    ASSERT_GT(run.rank(0), 0);
    ::usleep(static_cast<useconds_t>(trial % 8) * 25'000);
    run.process().signal(SIGTERM);
    EXPECT_EQ(run.process().end(), 128 + SIGTERM) << run.output();
    EXPECT_TRUE(run.seconds_until_gone(10));
    EXPECT_EQ(count_of(run.output(), "prun: rank"), 0) << run.output();
  }
}

}  // namespace
}  // namespace prun::test
