// SIGKILL, at any moment of a run: everybody is gone soon, the right one is named, nothing is left.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "runs.hpp"

namespace prun::test::kill_test {
namespace {

constexpr int ranks = 3;

// On a device.
class KillOn : public testing::TestWithParam<RunDevice> {
 protected:
  // The words that start a run without an end.
  std::vector<std::string> run_of(int number) const {
    std::vector<std::string> sets = GetParam().sets;
    sets.emplace_back("run.steps=1000000");
    return with_test_plugins(recipe_file(std::string("kill-") + GetParam().name, number, sets));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, KillOn, testing::ValuesIn(run_devices()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(KillOn, ARankAtAnyMoment) {
  std::mt19937 random(test_seed());
  const std::vector<std::string> words = run_of(ranks);
  std::vector<double> times;
  for (int trial = 0; trial < (is_long() ? 50 : 3); ++trial) {
    const int victim = static_cast<int>(random() % ranks);
    PrunRun run(words);
    const pid_t pid = run.rank(victim);
    ASSERT_GT(pid, 0) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 1'200'000));  // the first step ends after about 300 ms
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(pid, SIGKILL)) << run.output();
    EXPECT_EQ(run.process().end(), 10) << run.output();
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
    times.push_back(seconds_since(start));
    const std::string named = "prun: rank " + std::to_string(victim) + " (pid " + std::to_string(pid) +
                              ") was killed by signal 9 (SIGKILL); it was ";
    EXPECT_TRUE(contains(run.output(), named)) << run.output();
    EXPECT_EQ(count_of(run.output(), "was killed by"), 1) << run.output();
    EXPECT_LT(times.back(), latest);
    EXPECT_EQ(leftovers(run.process()), std::set<std::string>());
  }
  print_times("a rank is killed, until all are gone", times);
}

// Ranks, launcher and the process that would remove what they leave: the next start does, of one rank or of
// several, and a run that is under way keeps its own.
TEST(Kill, EverythingAndTheNextStartRemovesWhatIsLeft) {
  PrunRun lives({recipe_file("goes-on-beside", 2, {"run.steps=1000000"})});
  ASSERT_TRUE(lives.process().says("step 2/")) << lives.output();
  const std::set<std::string> its_own = names_of(lives.process().pid());
  ASSERT_EQ(its_own.size(), 1u);
  for (const int size : {1, 2}) {
    const std::string number = std::to_string(size);
    PrunRun killed({recipe_file("kill-all-" + number, 2, {"run.steps=1000000"})});
    ASSERT_TRUE(killed.process().says("step 2/")) << killed.output();
    for (const int signal : {SIGSTOP, SIGKILL})
      for (const pid_t pid : killed.alive()) send_signal(pid, signal);
    EXPECT_EQ(killed.process().end(), 1000 + SIGKILL);
    ASSERT_TRUE(killed.seconds_until_gone());
    EXPECT_EQ(names_of(killed.process().pid()).size(), 1u);
    PrunRun next({recipe_file("next-" + number, size, {"run.steps=2"})});
    EXPECT_EQ(next.process().end(), 0) << next.output();
    EXPECT_EQ(names_of(killed.process().pid()), std::set<std::string>());
  }
  EXPECT_EQ(names_of(lives.process().pid()), its_own);
  EXPECT_GE(lives.stop_and_save(), 2) << lives.output();
}

TEST(Kill, TheLauncherAtAnyMoment) {
  std::mt19937 random(test_seed());
  const std::string recipe = recipe_file("kill-launcher", ranks, {"run.steps=1000000"});
  std::vector<double> times;
  for (int trial = 0; trial < (is_long() ? 20 : 3); ++trial) {
    PrunRun run({recipe});
    ASSERT_GT(run.rank(ranks - 1), 0) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 1'200'000));
    const auto start = Clock::now();
    run.process().signal(SIGKILL);
    EXPECT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
    times.push_back(seconds_since(start));
    EXPECT_EQ(run.process().end(), 1000 + SIGKILL) << run.output();
    EXPECT_EQ(leftovers(run.process()), std::set<std::string>());
  }
  print_times("the launcher is killed, until all are gone", times);
}

// Segments of shared memory have a name for some milliseconds while a rank connects: this aims there.
TEST(Kill, WhileSharedMemoryIsMade) {
  std::mt19937 random(test_seed());
  const std::string recipe = recipe_file("kill-connecting", ranks, {"run.steps=1000000"});
  for (int trial = 0; trial < (is_long() ? 200 : 20); ++trial) {
    PrunRun run({recipe});
    ASSERT_GT(run.rank(ranks - 1), 0) << run.output();
    ::usleep(static_cast<useconds_t>(random() % 150'000));
    run.process().signal(SIGKILL);
    ASSERT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
    EXPECT_EQ(leftovers(run.process()), std::set<std::string>());
  }
}

// What a save leaves in the folder of a run when it does not end.
std::set<std::string> unfinished_in(const std::string& out) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(out))
    if (const std::string name = entry.path().filename();
        is_temporary_name(name) || name.ends_with(".replaced"))
      names.insert(name);
  return names;
}

// A run whose ranks save a part each, killed again and again: in the end it is where one is that nobody
// disturbed.
TEST(Kill, WhileItSaves) {
  std::mt19937 random(test_seed());
  const std::string zero =
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = \"data\"\n[[strategy]]\nplugin = \"zero\"\nstage = 1\n";
  const std::string recipe = layout_file(
      "kill-saving", zero, {"run.steps=1000000", "run.save_every=1", "run.keep=2", "batch.micro=2"});
  const std::string out = out_folder("kill-saving");
  std::vector<std::string> words = {recipe};
  int killed_in_a_save = 0;
  std::set<std::string> left;  // by the one before
  for (int trial = 0; trial < (is_long() ? 200 : 8); ++trial) {
    PrunRun run(words);
    ASSERT_TRUE(run.process().says("saved: ")) << run.output();
    for (const std::string& name : unfinished_in(out))
      EXPECT_FALSE(left.contains(name)) << name << " is still there";
    ::usleep(static_cast<useconds_t>(random() % 40'000));
    const int victim = static_cast<int>(random() % 3);
    ASSERT_TRUE(send_signal(victim == 2 ? run.process().pid() : run.rank(victim), SIGKILL));
    ASSERT_TRUE(run.seconds_until_gone(latest)) << run.alive().size() << " are left";
    left = unfinished_in(out);
    killed_in_a_save += !left.empty();
    ASSERT_FALSE(saved_tensors(out).empty());
    words = {recipe, "--set", "run.resume=" + out};
  }
  std::printf("killed while something was unfinished: %d times\n", killed_in_a_save);
  const std::string newest = read_latest(out)->filename();
  const std::string steps = "run.steps=" + std::to_string(std::atoi(newest.c_str() + 5) + 3);
  words.insert(words.end(), {"--set", steps});
  PrunRun last(words);
  ASSERT_EQ(last.process().end(), 0) << last.output();
  EXPECT_EQ(unfinished_in(out), std::set<std::string>());
  PrunRun whole({layout_file("not-killed", zero, {steps, "run.save_every=1000000", "batch.micro=2"})});
  ASSERT_EQ(whole.process().end(), 0) << whole.output();
  EXPECT_TRUE(saved_tensors(out) == saved_tensors(out_folder("not-killed"))) << "other bits at " << newest;
}

// The other one's queues wait for it, and must be made to give up.
TEST_P(KillOn, ARankThatSomebodyElseStarted) {
  const std::vector<std::string> words = run_of(2);
  for (const int victim : {0, 1}) {
    const int port = free_port();
    PrunRun runs[] = {PrunRun(words, torchrun_variables(0, 2, port)),
                      PrunRun(words, torchrun_variables(1, 2, port))};
    ASSERT_TRUE(runs[0].process().says("step 3/")) << runs[0].output();
    const auto start = Clock::now();
    runs[victim].process().signal(SIGKILL);
    PrunRun& other = runs[1 - victim];
    EXPECT_EQ(other.process().end(), 12) << other.output();
    EXPECT_LT(seconds_since(start), latest);
    const std::string reason = victim == 0 ? "rank 0, which holds the rendezvous, is gone"
                                           : "the first to fail is rank 1: ended without a word";
    EXPECT_TRUE(contains(other.output(), reason)) << other.output();
    for (const PrunRun& run : runs) {
      EXPECT_TRUE(run.seconds_until_gone(latest));
      EXPECT_EQ(leftovers(run.process()), std::set<std::string>());
    }
  }
}

}  // namespace
}  // namespace prun::test::kill_test
