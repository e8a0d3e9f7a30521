// Launches with real processes: how they end, who is named, and that nothing is left.
#include "launch/launcher.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "base/machine.hpp"
#include "launch/leftovers.hpp"
#include "launch/process.hpp"
#include "launch/rank_process.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::launcher_test {
namespace {

// Seconds, for what takes less than one on a machine that has nothing else to do.
constexpr double latest = 60;
// Longer than a rank that can go on may have to wait for a core.
constexpr int hang_ms = 5000;

bool is_long() { return std::getenv("PRUN_LONG") != nullptr; }

Process launch_ranks(int ranks, int limit_ms, std::vector<std::string> role,
                     const Variables& variables = {}) {
  std::vector<std::string> arguments = {"launch", std::to_string(ranks), std::to_string(limit_ms)};
  arguments.insert(arguments.end(), role.begin(), role.end());
  return Process(arguments, variables);
}

int pid_of(Process& launcher, int rank) {
  return launcher.number_after("rank " + std::to_string(rank) + " pid ");
}

bool is_running(int pid) {
  const char state = process_state(pid);
  return state != 0 && state != 'Z';
}

// Waits until these ranks are gone; the seconds it took, or a large number.
double seconds_until_gone(Process& launcher, int ranks, double limit) {
  const auto start = Clock::now();
  for (; seconds_since(start) < limit; ::usleep(2000)) {
    int left = 0;
    for (int rank = 0; rank < ranks; ++rank) left += is_running(pid_of(launcher, rank));
    if (left == 0) return seconds_since(start);
  }
  return 1e9;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Launcher, RanksMeetAndEndWell) {
  for (const int ranks : {1, 2, 3, 8}) {
    Process launcher = launch_ranks(ranks, 0, {"gather", "20"});
    EXPECT_EQ(launcher.end(), 0) << launcher.output();
    EXPECT_TRUE(launcher.says("gathered", ranks, 0.1)) << launcher.output();
  }
}

TEST(Launcher, RanksAreCalledByTheirNumbers) {
  Process launcher = launch_ranks(3, 0, {"steps"});
  ASSERT_TRUE(launcher.says("runs", 3)) << launcher.output();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string name = "prun " + std::to_string(rank) + "/3";
    const std::string process = "/proc/" + std::to_string(pid_of(launcher, rank));
    EXPECT_EQ(read_file(process + "/comm"), name + "\n");
    EXPECT_TRUE(read_file(process + "/cmdline").starts_with(name + '\0')) << read_file(process + "/cmdline");
  }
}

TEST(Launcher, RanksDoNotTakeThemselvesForSomebodyElses) {
  Process launcher = launch_ranks(2, 0, {"gather", "1"},
                                  {{"RANK", "5"}, {"WORLD_SIZE", "9"}, {"OMPI_COMM_WORLD_RANK", "7"}});
  EXPECT_EQ(launcher.end(), 0) << launcher.output();
  Process alone({"gather", "1"});
  EXPECT_EQ(alone.end(), 2);
  EXPECT_TRUE(contains(alone.output(), "this process is no rank")) << alone.output();
}

TEST(Launcher, RanksGetTheirShareOfTheCores) {
  cpu_set_t usable;
  ASSERT_EQ(::sched_getaffinity(0, sizeof usable, &usable), 0);
  const int cores = CPU_COUNT(&usable);
  if (cores < 2) GTEST_SKIP() << "one core cannot be shared";
  Process launcher = launch_ranks(2, 0, {"cores"});
  EXPECT_EQ(launcher.end(), 0) << launcher.output();
  EXPECT_EQ(launcher.number_after("rank 0 has ") + launcher.number_after("rank 1 has "), cores);
}

// By whichever variable a comm plugin wants to be told; one that is set holds.
TEST(Launcher, TellsItsFolderInSharedMemoryByTheVariablesItIsGiven) {
  Process launcher = launch_ranks(2, 0, {"folder"});
  EXPECT_EQ(launcher.end(), 0) << launcher.output();
  EXPECT_TRUE(contains(launcher.output(), "rank 1 has folder /dev/shm/prun-")) << launcher.output();
  Process told = launch_ranks(2, 0, {"folder"}, {{"PRUN_TEST_FOLDER", "/tmp"}});
  EXPECT_EQ(told.end(), 0) << told.output();
  EXPECT_TRUE(contains(told.output(), "rank 1 has folder /tmp\n")) << told.output();
}

TEST(Launcher, PassesOnTheFirstFailuresExitCode) {
  for (const int code : {1, 2, 12, 13, 15}) {
    Process launcher = launch_ranks(3, 0, {"exit", std::to_string(code), "1"});
    EXPECT_EQ(launcher.end(), code) << launcher.output();
    EXPECT_TRUE(contains(launcher.output(), "ended with exit code " + std::to_string(code)))
        << launcher.output();
  }
}

TEST(Launcher, TheFirstReasonWinsOverItsConsequences) {
  Process launcher = launch_ranks(4, 0, {"throw", "1", "2"});  // bad_input
  EXPECT_EQ(launcher.end(), 2) << launcher.output();
  const std::string& said = launcher.output();
  EXPECT_TRUE(contains(said, "prun: rank 2 (pid ")) << said;
  EXPECT_TRUE(contains(said, "prun: rank 2: rank 2's own reason\n")) << said;
  EXPECT_TRUE(contains(said, "it was in step 5, in 'forward'")) << said;
  EXPECT_TRUE(contains(said, "prun:   rank")) << said;  // where the others were
  EXPECT_FALSE(contains(said, "prun: rank 0:")) << said;
}

TEST(Launcher, ForwardsAStopAndWaitsForAgreement) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process launcher = launch_ranks(3, 0, {"steps"});
    ASSERT_TRUE(launcher.says("runs", 3)) << launcher.output();
    launcher.signal(signal);
    EXPECT_EQ(launcher.end(), 128 + signal) << launcher.output();
    EXPECT_FALSE(contains(launcher.output(), "prun: rank")) << launcher.output();
  }
}

TEST(Launcher, ARankThatIsAskedToStopStopsAll) {
  Process launcher = launch_ranks(3, 0, {"steps"});
  ASSERT_TRUE(launcher.says("runs", 3)) << launcher.output();
  ASSERT_TRUE(send_signal(pid_of(launcher, 1), SIGTERM));
  EXPECT_EQ(launcher.end(), 128 + SIGTERM) << launcher.output();
}

TEST(Launcher, ASecondInterruptKillsAtOnce) {
  Process launcher = launch_ranks(2, 0, {"nap", "3", "1"});
  ASSERT_TRUE(launcher.says("runs", 2));
  launcher.signal(SIGINT);
  EXPECT_TRUE(launcher.has_taken(SIGINT));
  EXPECT_EQ(launcher.end(0.3), -1) << launcher.output();
  const auto start = Clock::now();
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.end(), 130) << launcher.output();
  EXPECT_LT(seconds_since(start), latest);
}

// Ranks that hang never come to where they would stop; without a limit, too.
TEST(Launcher, AStopEndsRanksThatDoNotGetOn) {
  Process launcher = launch_ranks(2, 0, {"nap", "3", "all"});
  ASSERT_TRUE(launcher.says("runs", 2)) << launcher.output();
  const auto start = Clock::now();
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.end(), 11) << launcher.output();
  EXPECT_LT(seconds_since(start), latest);
  EXPECT_TRUE(contains(launcher.output(), "nor has any other rank; it was in step 3, in 'long nap'"))
      << launcher.output();
  EXPECT_FALSE(contains(launcher.output(), "the others wait for it")) << launcher.output();
  EXPECT_LT(seconds_until_gone(launcher, 2, latest), latest);
}

// At random moments, from the very start on.
TEST(Launcher, AKilledRankIsNamedAndAllAreGone) {
  std::mt19937 random(7);
  double slowest = 0;
  for (int trial = 0; trial < (is_long() ? 50 : 5); ++trial) {
    constexpr int ranks = 4;
    const int victim = static_cast<int>(random() % ranks);
    Process launcher = launch_ranks(ranks, 0, {"steps"});
    ASSERT_TRUE(launcher.says(" pid ", ranks)) << launcher.output();
    ::usleep(static_cast<useconds_t>(random() % 100'000));
    const int pid = pid_of(launcher, victim);
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(pid, SIGKILL)) << launcher.output();
    EXPECT_EQ(launcher.end(), 10) << launcher.output();
    slowest = std::max(slowest, seconds_since(start));
    const std::string named = "prun: rank " + std::to_string(victim) + " (pid " + std::to_string(pid) +
                              ") was killed by signal 9 (SIGKILL); it was ";
    EXPECT_TRUE(contains(launcher.output(), named)) << launcher.output();
    EXPECT_TRUE(contains(launcher.output(), "prun:   why: ")) << "the kernel is asked: " << launcher.output();
    EXPECT_LT(seconds_until_gone(launcher, ranks, latest), latest);
    EXPECT_EQ(leftovers(launcher), std::set<std::string>());
  }
  EXPECT_LT(slowest, latest);
  RecordProperty("slowest_ms", static_cast<int>(slowest * 1000));
}

TEST(Launcher, ItsRanksDieWithIt) {
  Process launcher = launch_ranks(4, 0, {"steps"});
  ASSERT_TRUE(launcher.says("runs", 4));
  const auto start = Clock::now();
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.end(), 1000 + SIGKILL);
  EXPECT_LT(seconds_until_gone(launcher, 4, latest), latest);
  EXPECT_LT(seconds_since(start), latest);
}

TEST(Launcher, WhatARankStartedGoesWithIt) {
  Process launcher = launch_ranks(1, 0, {"children"});
  ASSERT_TRUE(launcher.says("runs"));
  ASSERT_TRUE(launcher.says("child pid"));
  const int child = launcher.number_after("child pid ");
  ASSERT_TRUE(is_running(child));
  ASSERT_TRUE(send_signal(pid_of(launcher, 0), SIGKILL));
  EXPECT_EQ(launcher.end(), 10);
  for (const auto start = Clock::now(); is_running(child) && seconds_since(start) < latest;) ::usleep(2000);
  EXPECT_FALSE(is_running(child));
}

TEST(Launcher, NamesAStoppedRank) {
  Process launcher = launch_ranks(4, hang_ms, {"steps"});
  ASSERT_TRUE(launcher.says("runs", 4));
  const auto start = Clock::now();
  ASSERT_TRUE(send_signal(pid_of(launcher, 2), SIGSTOP));
  EXPECT_EQ(launcher.end(), 11) << launcher.output();
  EXPECT_LT(seconds_since(start), latest);
  EXPECT_TRUE(contains(launcher.output(), "prun: rank 2 (pid ")) << launcher.output();
  EXPECT_TRUE(contains(launcher.output(), "is stopped (by a signal such as SIGSTOP)")) << launcher.output();
  EXPECT_LT(seconds_until_gone(launcher, 4, latest), latest);
}

TEST(Launcher, NamesAStoppedRankThatNobodyWaitsFor) {
  Process launcher = launch_ranks(3, hang_ms, {"stop", "0", "1"});
  EXPECT_EQ(launcher.end(), 11) << launcher.output();
  EXPECT_TRUE(contains(launcher.output(), "prun: rank 1 (pid ")) << launcher.output();
  EXPECT_TRUE(contains(launcher.output(), "and no other rank runs any more")) << launcher.output();
}

TEST(Launcher, NamesTheRankThatDoesNotCome) {
  const auto start = Clock::now();
  Process launcher = launch_ranks(3, hang_ms, {"nap", "7", "1"});
  EXPECT_EQ(launcher.end(), 11) << launcher.output();
  EXPECT_LT(seconds_since(start), latest);
  const std::string& said = launcher.output();
  EXPECT_TRUE(contains(said, "has not reached all_reduce (number 8 of 'dp')")) << said;
  EXPECT_TRUE(contains(said, "it was in step 7, in 'long nap'")) << said;
  EXPECT_TRUE(contains(said, "prun:   ranks 0, 2: step 7, inside all_reduce (number 8 of 'dp')")) << said;
  EXPECT_TRUE(contains(said, "prun: > rank 1: step 7, in 'long nap'")) << said;
  EXPECT_TRUE(contains(said, "<- the others wait for it")) << said;
  EXPECT_TRUE(contains(said, "prun:   when: 2")) << said;
  EXPECT_TRUE(contains(said, "prun:   its last exchange: all_reduce (number 7 of 'dp'), done")) << said;
}

TEST(Launcher, NamesTheRankThatDoesNotComeToTheRendezvous) {
  Process launcher = launch_ranks(3, 0, {"absent", "5000", "1"});
  EXPECT_EQ(launcher.end(), 11) << launcher.output();
  EXPECT_TRUE(contains(launcher.output(), "rank 1 did not come to 'assembly' within 5 s"))
      << launcher.output();
}

TEST(Launcher, AProgramThatCannotRunIsAnError) {
  LaunchOptions options;
  options.program = "/nowhere/at/all";
  options.arguments = {"x"};
  try {
    launch(options);
    FAIL() << "launched";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot run '/nowhere/at/all': No such file or directory");
  }
}

TEST(Launcher, SharesCoresInTurn) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  for (const int core : {1, 2, 3, 5, 8, 9, 11}) CPU_SET(core, &usable);
  const auto shares = share_cores(usable, 3);
  const std::vector<std::vector<int>> expected = {{1, 2}, {3, 5}, {8, 9, 11}};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(shares[rank]);
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &*shares[rank])) cores.push_back(core);
    EXPECT_EQ(cores, expected[rank]);
  }
  for (const auto& share : share_cores(usable, 8)) EXPECT_FALSE(share);
}

}  // namespace
}  // namespace prun::test::launcher_test
