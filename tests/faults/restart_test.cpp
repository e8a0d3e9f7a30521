// Runs that are started again after a rank was lost: they end as if nothing had been.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "runs.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::restart_test {
namespace {

constexpr int ranks = 2;
constexpr const char* again = "prun: starting the ranks again";

TEST(Restart, ARunThatLosesRanksEndsWithTheSameBits) {
  std::mt19937 random(test_seed());
  const int kills = is_long() ? 50 : 3;
  // The run without an end: no kill comes too late.
  const std::vector<std::string> sets = {"run.steps=1000000", "run.save_every=20"};
  PrunRun run({recipe_file("disturbed", ranks, sets), "--set", "run.restarts=3"});
  std::vector<double> times;
  for (int kill = 0; kill < kills; ++kill) {
    ASSERT_TRUE(run.goes_on(50)) << run.output();
    ASSERT_TRUE(run.process().says("saved: ", count_of(run.output(), "saved: ") + 1)) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 50'000));
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(run.rank(static_cast<int>(random() % ranks)), SIGKILL)) << run.output();
    ASSERT_TRUE(run.process().says(again, kill + 1)) << run.output();
    ASSERT_TRUE(run.goes_on(1)) << run.output();
    times.push_back(seconds_since(start));
  }
  ASSERT_TRUE(run.goes_on(50)) << run.output();
  const int steps = run.stop_and_save();
  ASSERT_GT(steps, 0) << run.output();
  PrunRun whole({recipe_file("undisturbed", ranks, sets), "--set", "run.steps=" + std::to_string(steps)});
  ASSERT_EQ(whole.process().end(), 0) << whole.output();
  print_times("a rank is killed, until the run is back at work", times);
  EXPECT_EQ(count_of(run.output(), again), kills);
  EXPECT_EQ(count_of(read_file(out_folder("disturbed") + "/failures.log"), "was killed by signal 9"), kills);
  EXPECT_TRUE(saved_tensors(out_folder("disturbed")) == saved_tensors(out_folder("undisturbed")))
      << "other bits";
}

TEST(Restart, WhatWasLostStandsInTheFolderWithWhatToTypeNext) {
  const std::string out = out_folder("certified");
  PrunRun run({recipe_file("certified", ranks, {"run.steps=1000000", "run.save_every=5"})});
  ASSERT_TRUE(run.process().says("saved: ")) << run.output();
  ASSERT_TRUE(send_signal(run.rank(1), SIGKILL)) << run.output();
  EXPECT_EQ(run.process().end(), 10) << run.output();
  const std::string said = read_file(out + "/failures.log");
  for (const std::string& part :
       {std::string("was killed by signal 9 (SIGKILL); it was "), std::string("prun:   rank 0: "),
        std::string("prun:   when: 2"), std::string("prun:   its last exchange: "),
        std::string("prun:   why: "), std::string("prun:   next: prun "), " --set run.resume=" + out})
    EXPECT_TRUE(contains(said, part)) << part << "\n" << said;
}

TEST(Restart, WhatCrashesAgainAndAgainIsGivenUp) {
  PrunRun run({recipe_file("crashes", ranks, {"run.steps=1000000", "run.restarts=2"})});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_TRUE(run.process().says("step 5/", attempt)) << run.output();
    ASSERT_TRUE(send_signal(run.rank(1), SIGKILL)) << run.output();
  }
  EXPECT_EQ(run.process().end(), 10) << run.output();
  EXPECT_EQ(count_of(run.output(), again), 2) << run.output();
  EXPECT_TRUE(contains(run.output(), "(2 of 2 in a row), from the beginning")) << run.output();
  EXPECT_TRUE(contains(run.output(), "no checkpoint came to be in 3 attempts; giving up")) << run.output();
}

// What the next attempt would meet as well.
TEST(Restart, WhatDivergesIsNotTriedAgain) {
  PrunRun run({recipe_file(
      "diverges-once", ranks,
      {"optimizer.plugin=sgd", "optimizer.lr=1e6", "optimizer.clip=0", "run.steps=50", "run.restarts=2"})});
  EXPECT_EQ(run.process().end(), 15) << run.output();
  EXPECT_EQ(count_of(run.output(), again), 0) << run.output();
}

}  // namespace
}  // namespace prun::test::restart_test
