// Ranks that hold the others up without dying: each is named soon after the limit of the recipe.
#include <gtest/gtest.h>

#include <random>

#include "launch/rendezvous.hpp"
#include "runs.hpp"

namespace prun::test {
namespace {

constexpr int ranks = 3;
constexpr double limit = 3;  // run.hang_limit

// Seconds until a hang must be over, on a machine that has other things to do.
constexpr double latest = limit + 10;

const std::vector<std::string> hang_sets = {"run.steps=1000000", "run.hang_limit=3"};

std::string named(int rank, pid_t pid) {
  return "prun: rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ") ";
}

TEST(Hang, AStoppedRankIsNamed) {
  std::mt19937 random(test_seed());
  const std::string recipe = recipe_file("stop", ranks, hang_sets);
  std::vector<double> times;
  for (int trial = 0; trial < (is_long() ? 25 : 2); ++trial) {
    const int victim = static_cast<int>(random() % ranks);
    PrunRun run({recipe});
    const pid_t pid = run.rank(victim);
    ASSERT_TRUE(run.process().says("step 3/")) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 300'000));
    const auto start = Clock::now();
    ASSERT_EQ(::kill(pid, SIGSTOP), 0) << run.output();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    times.push_back(seconds_since(start));
    EXPECT_LT(times.back(), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "is stopped (by a signal such as SIGSTOP)"))
        << run.output();
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
  }
  print_times("a rank is stopped, until it is named and all are gone (limit 3 s)", times);
}

// Loading, meeting and connecting are watched like the steps.
TEST(Hang, AStoppedRankIsNamedBeforeTheFirstStep) {
  std::mt19937 random(test_seed());
  const std::string recipe = recipe_file("stop-early", ranks, hang_sets);
  std::vector<double> times;
  for (int trial = 0; trial < (is_long() ? 25 : 4); ++trial) {
    const int victim = static_cast<int>(random() % ranks);
    PrunRun run({recipe});
    const pid_t pid = run.rank(victim);
    ASSERT_GT(pid, 0);
    ::usleep(static_cast<useconds_t>(random() % 150'000));
    const auto start = Clock::now();
    ASSERT_EQ(::kill(pid, SIGSTOP), 0) << run.output();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    times.push_back(seconds_since(start));
    EXPECT_LT(times.back(), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "is stopped")) << run.output();
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
  }
  print_times("a rank is stopped while it starts, until it is named (limit 3 s)", times);
}

// Nobody watches over ranks that somebody else started: the rendezvous does, while they meet.
TEST(Hang, ARankStartedByHandThatDoesNotMeetTheOthersIsNamed) {
  const std::string recipe = recipe_file("stop-by-hand", 2, hang_sets);
  const int port = free_port();
  PrunRun first({recipe}, torchrun_variables(0, 2, port));
  const Variables variables = torchrun_variables(1, 2, port);
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    for (const auto& [known, value] : variables)
      if (known == name) return value;
    return {};
  };
  const auto second = Rendezvous::connect(*identity_from_environment(environment), environment);
  const auto start = Clock::now();
  EXPECT_EQ(first.process().end(), 11) << first.output();
  EXPECT_LT(seconds_since(start), latest);
  EXPECT_TRUE(contains(first.output(), "rank 1 did not come to 'plan' within 3 s")) << first.output();
}

// Its data does not come: it never reaches the exchange in which the others wait.
TEST(Hang, ARankThatDoesNotReachACollectiveIsNamed) {
  std::vector<std::string> sets = hang_sets;
  for (const char* set : {"data.plugin=stalling", "data.rank=1"}) sets.emplace_back(set);
  PrunRun run({recipe_file("stall", ranks, sets), "--plugin-path", PRUN_TEST_PLUGINS "/test"});
  const pid_t pid = run.rank(1);
  ASSERT_TRUE(run.process().says("step 3/")) << run.output();
  ASSERT_TRUE(run.process().says("rank 1 reads no more")) << run.output();
  const auto start = Clock::now();
  EXPECT_EQ(run.process().end(), 11) << run.output();
  print_times("a rank stops reading data, until it is named (limit 3 s)", {seconds_since(start)});
  EXPECT_LT(seconds_since(start), latest);
  EXPECT_TRUE(contains(run.output(), named(1, pid) + "has not reached ")) << run.output();
}

// A comm plugin that is itself stuck: the others are in the same exchange, but wait in it.
TEST(Hang, ARankStuckInItsCommPluginIsNamed) {
  const std::string recipe = recipe_file("stuck", ranks, hang_sets);
  for (int victim = 0; victim < ranks; ++victim) {
    PrunRun run({recipe, "--plugin-path", PRUN_TEST_PLUGINS "/test", "--set", "comm.default=blocking"},
                {{"PRUN_TEST_BLOCK", std::to_string(victim)}});
    const pid_t pid = run.rank(victim);
    const std::string mark = "rank " + std::to_string(victim) + " blocks in start()";
    ASSERT_TRUE(run.process().says(mark)) << run.output();
    const auto start = Clock::now();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    EXPECT_LT(seconds_since(start), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "does not get on in its comm plugin, in "))
        << run.output();
  }
}

// A comm plugin that skips what it should do: its rank goes on, the others wait.
TEST(Hang, ARankWhoseCommPluginSkipsIsNamed) {
  const std::string recipe = recipe_file("skip", ranks, hang_sets);
  for (int victim = 0; victim < ranks; ++victim) {
    PrunRun run({recipe, "--plugin-path", PRUN_TEST_PLUGINS "/test", "--set", "comm.default=blocking"},
                {{"PRUN_TEST_SKIP", std::to_string(victim)}});
    const pid_t pid = run.rank(victim);
    const auto start = Clock::now();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    EXPECT_LT(seconds_since(start), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "has gone on without the others from "))
        << run.output();
  }
}

}  // namespace
}  // namespace prun::test
