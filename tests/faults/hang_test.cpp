// Ranks that hold the others up without dying: each is named soon after the limit of the recipe.
#include <gtest/gtest.h>

#include <random>
#include <span>

#include "launch/rendezvous.hpp"
#include "runs.hpp"

namespace prun::test::hang_test {
namespace {

constexpr int ranks = 3;
// The limit is longer than a rank that can go on may have to wait for a core.
const std::vector<std::string> hang_sets = {"run.steps=1000000", "run.hang_limit=8"};

std::string named(int rank, pid_t pid) {
  return "prun: rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ") ";
}

// On a device.
class HangOn : public testing::TestWithParam<RunDevice> {
 protected:
  // The words that start a run without an end.
  std::vector<std::string> run_with(const std::string& name,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> sets = hang_sets;
    sets.insert(sets.end(), more.begin(), more.end());
    sets.insert(sets.end(), GetParam().sets.begin(), GetParam().sets.end());
    return with_test_plugins(recipe_file(name + GetParam().name, ranks, sets));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, HangOn, testing::ValuesIn(run_devices()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(HangOn, AStoppedRankIsNamed) {
  std::mt19937 random(test_seed());
  const std::vector<std::string> words = run_with("stop-");
  std::vector<double> times;
  for (int trial = 0; trial < (is_long() ? 25 : 1); ++trial) {
    const int victim = static_cast<int>(random() % ranks);
    PrunRun run(words);
    const pid_t pid = run.rank(victim);
    ASSERT_TRUE(run.process().says("step 3/")) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 300'000));
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(pid, SIGSTOP)) << run.output();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    times.push_back(seconds_since(start));
    EXPECT_LT(times.back(), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "is stopped (by a signal such as SIGSTOP)"))
        << run.output();
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
  }
  print_times("a rank is stopped, until it is named and all are gone (limit 8 s)", times);
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
    ASSERT_TRUE(send_signal(pid, SIGSTOP)) << run.output();
    EXPECT_EQ(run.process().end(), 11) << run.output();
    times.push_back(seconds_since(start));
    EXPECT_LT(times.back(), latest);
    EXPECT_TRUE(contains(run.output(), named(victim, pid) + "is stopped")) << run.output();
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
  }
  print_times("a rank is stopped while it starts, until it is named (limit 8 s)", times);
}

// The rendezvous watches over ranks that somebody else started while they meet.
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
  EXPECT_TRUE(contains(first.output(), "rank 1 did not come to 'arrival' within 8 s")) << first.output();
}

// ------------------------------------------------------------------- ranks that others have started

struct Launcher {
  const char* name;
  Variables (*variables)(int rank, int world, int port);
};
constexpr Launcher launchers[] = {
    {"torchrun", torchrun_variables}, {"mpirun", mpirun_variables}, {"srun", srun_variables}};

// They differ in how a rank learns its number only: each test takes one of them, the long version all.
std::span<const Launcher> some(std::size_t one) {
  return is_long() ? std::span(launchers) : std::span(launchers).subspan(one, 1);
}

std::vector<PrunRun> start_by(const Launcher& launcher, const std::vector<std::string>& words) {
  const int port = free_port();
  std::vector<PrunRun> runs;
  for (int rank = 0; rank < ranks; ++rank) runs.emplace_back(words, launcher.variables(rank, ranks, port));
  return runs;
}

TEST(Hang, ARankStartedByOthersThatIsStoppedIsNamed) {
  for (const Launcher& launcher : some(0)) {
    std::vector<PrunRun> runs =
        start_by(launcher, {recipe_file(std::string("stop-") + launcher.name, ranks, hang_sets)});
    ASSERT_TRUE(runs[0].process().says("step 3/")) << runs[0].output();
    const auto start = Clock::now();
    runs[1].process().signal(SIGSTOP);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(runs[static_cast<std::size_t>(rank)].process().end(), 11)
          << launcher.name << ": " << runs[static_cast<std::size_t>(rank)].output();
      EXPECT_TRUE(contains(runs[static_cast<std::size_t>(rank)].output(), "rank 1 gives no sign of life ("))
          << runs[static_cast<std::size_t>(rank)].output();
      EXPECT_TRUE(contains(runs[static_cast<std::size_t>(rank)].output(), ") and holds up "))
          << runs[static_cast<std::size_t>(rank)].output();
      EXPECT_TRUE(contains(runs[static_cast<std::size_t>(rank)].output(), "; when last heard of, it was "))
          << runs[static_cast<std::size_t>(rank)].output();
    }
    EXPECT_LT(seconds_since(start), latest);
    EXPECT_EQ(count_of(runs[0].output(), "the first to fail is rank 1: gives no sign of life ("), 1)
        << runs[0].output();
    runs[1].process().signal(SIGCONT);
    EXPECT_GT(runs[1].process().end(), 0) << runs[1].output();
  }
}

// Where the rendezvous is: the others find out by themselves.
TEST(Hang, TheFirstRankStartedByOthersThatIsStoppedIsNamed) {
  for (const Launcher& launcher : some(1)) {
    std::vector<PrunRun> runs =
        start_by(launcher, {recipe_file(std::string("first-") + launcher.name, ranks, hang_sets)});
    ASSERT_TRUE(runs[0].process().says("step 3/")) << runs[0].output();
    runs[0].process().signal(SIGSTOP);
    for (const int rank : {1, 2}) {
      EXPECT_EQ(runs[static_cast<std::size_t>(rank)].process().end(), 11)
          << launcher.name << ": " << runs[static_cast<std::size_t>(rank)].output();
      EXPECT_TRUE(contains(runs[static_cast<std::size_t>(rank)].output(), "rank 0 gives no sign of life ("))
          << runs[static_cast<std::size_t>(rank)].output();
      EXPECT_TRUE(contains(runs[static_cast<std::size_t>(rank)].output(), ") and holds up "))
          << runs[static_cast<std::size_t>(rank)].output();
    }
    runs[0].process().signal(SIGCONT);
    EXPECT_GT(runs[0].process().end(), 0) << runs[0].output();
  }
}

// The device refuses more ranks than it has units, and each rank knows its number among those of the host.
TEST(LocalRank, ReachesTheDeviceWhoeverStartsTheRanks) {
  const std::vector<std::string> words = {
      recipe_file("units", ranks, {"device.plugin=cpu-async", "device.units=2"}), "--plugin-path",
      PRUN_TEST_PLUGINS "/test"};
  for (const Launcher& launcher : launchers) {
    std::vector<PrunRun> runs = start_by(launcher, words);
    for (int rank = 0; rank < ranks; ++rank) {
      PrunRun& run = runs[static_cast<std::size_t>(rank)];
      EXPECT_EQ(run.process().end(), 2) << launcher.name << ": " << run.output();
      EXPECT_TRUE(contains(run.output(), "rank " + std::to_string(rank) + " of 3 on this host, which has 2"))
          << launcher.name << ": " << run.output();
    }
  }
  PrunRun ours(words);
  EXPECT_EQ(ours.process().end(), 2) << ours.output();
  EXPECT_TRUE(contains(ours.output(), "of 3 on this host, which has 2 units")) << ours.output();
}

// The rank that is stuck ends as well, although nobody can ask it to.
TEST(Hang, ARankStartedByOthersThatDoesNotReachACollectiveIsNamed) {
  for (const Launcher& launcher : some(2)) {
    std::vector<std::string> sets = hang_sets;
    for (const char* set : {"data.plugin=stalling", "data.rank=1"}) sets.emplace_back(set);
    std::vector<PrunRun> runs =
        start_by(launcher, {recipe_file(std::string("stall-") + launcher.name, ranks, sets), "--plugin-path",
                            PRUN_TEST_PLUGINS "/test"});
    for (PrunRun& run : runs) {
      EXPECT_EQ(run.process().end(), 11) << launcher.name << ": " << run.output();
      EXPECT_TRUE(contains(run.output(), "rank 1 has not reached ")) << run.output();
      EXPECT_TRUE(contains(run.output(), " has waited for ")) << run.output();
      EXPECT_TRUE(contains(run.output(), "; it was in step ")) << run.output();
    }
    EXPECT_TRUE(contains(runs[1].output(), "data plugin 'stalling' hangs in read()")) << runs[1].output();
  }
}

// Without a limit as well: once a rank is asked to end, those that never come to where it would are ended.
TEST(Hang, ARankStartedByOthersThatHoldsUpAStopIsNamed) {
  const std::string recipe =
      recipe_file("stop-stalled", ranks,
                  {"run.steps=1000000", "run.hang_limit=0", "data.plugin=stalling", "data.rank=1"});
  std::vector<PrunRun> runs = start_by(launchers[0], with_test_plugins(recipe));
  ASSERT_TRUE(runs[1].process().says("rank 1 reads no more")) << runs[1].output();
  const auto start = Clock::now();
  runs[2].process().signal(SIGTERM);
  for (PrunRun& run : runs) {
    EXPECT_EQ(run.process().end(), 11) << run.output();
    EXPECT_TRUE(contains(run.output(), "rank 1 has not reached ")) << run.output();
  }
  EXPECT_LT(seconds_since(start), latest);
}

// Its data does not come: it never reaches the exchange in which the others wait.
TEST_P(HangOn, ARankThatDoesNotReachACollectiveIsNamed) {
  PrunRun run(run_with("stall-", {"data.plugin=stalling", "data.rank=1"}));
  const pid_t pid = run.rank(1);
  ASSERT_TRUE(run.process().says("step 3/")) << run.output();
  ASSERT_TRUE(run.process().says("rank 1 reads no more")) << run.output();
  const auto start = Clock::now();
  EXPECT_EQ(run.process().end(), 11) << run.output();
  print_times("a rank stops reading data, until it is named (limit 8 s)", {seconds_since(start)});
  EXPECT_LT(seconds_since(start), latest);
  EXPECT_TRUE(contains(run.output(), named(1, pid) + "has not reached ")) << run.output();
  EXPECT_TRUE(contains(run.output(), "data plugin 'stalling' hangs in read()")) << run.output();
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
}  // namespace prun::test::hang_test
