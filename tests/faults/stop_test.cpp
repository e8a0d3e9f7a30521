// Stop signals to the launcher: all ranks stop after the same step, one checkpoint is written, and what
// goes on from there ends with the same bits as a run that nobody disturbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include "runs.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::stop_test {
namespace {

constexpr int ranks = 3;
// Without an end: what is stopped has not come to it, however late the signal is.
const std::vector<std::string> sets = {"run.steps=1000000", "run.save_every=1000000"};
constexpr int further_steps = 30;  // of a run that goes on

// Instead of the last step that the recipe says.
std::vector<std::string> until(std::vector<std::string> words, int step) {
  words.insert(words.end(), {"--set", "run.steps=" + std::to_string(step)});
  return words;
}

// From where a run in that folder was stopped.
std::vector<std::string> resumed_from(const std::string& out, std::vector<std::string> words) {
  words.insert(words.end(), {"--set", "run.resume=" + out});
  return words;
}

std::string line_of_step(int step, int last) {
  return "step " + std::to_string(step) + "/" + std::to_string(last);
}

int checkpoints_in(const std::string& out) {
  const auto entries = std::filesystem::directory_iterator(out);
  return static_cast<int>(std::count_if(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().filename().string().starts_with("step-");
  }));
}

// Until the process has done nothing for a while: it waits for something.
bool sleeps(pid_t pid) {
  const auto time_of = [pid] {
    const std::string all = read_file("/proc/" + std::to_string(pid) + "/stat");
    std::istringstream rest(all.substr(std::min(all.size(), all.rfind(')'))));
    std::string word;
    for (int field = 2; field < 14; ++field) rest >> word;
    std::int64_t user = -1, system = -1;
    return rest >> user >> system ? user + system : -1;
  };
  std::int64_t last = -1;
  for (int same = 0; same < 20; ::usleep(25'000)) {
    const std::int64_t now = time_of();
    if (now < 0) return false;
    same = now == last ? same + 1 : 0;
    last = now;
  }
  return true;
}

// On a device.
class StopOn : public testing::TestWithParam<RunDevice> {
 protected:
  std::vector<std::string> run_of(const std::string& name) const {
    std::vector<std::string> all = sets;
    all.insert(all.end(), GetParam().sets.begin(), GetParam().sets.end());
    return with_test_plugins(recipe_file(name, ranks, all));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, StopOn, testing::ValuesIn(run_devices()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(StopOn, SavesOnceAndResumesToTheSameBits) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "stopped-" + std::to_string(signal), undisturbed = "whole-" + name;
    const std::vector<std::string> words = run_of(name);
    PrunRun stopped(words);
    ASSERT_TRUE(stopped.process().says("step 20/")) << stopped.output();
    const int step = stopped.stop_and_save(signal);
    ASSERT_GE(step, 20) << stopped.output();
    EXPECT_TRUE(stopped.seconds_until_gone());
    EXPECT_EQ(checkpoints_in(out_folder(name)), 1);
    EXPECT_EQ(count_of(stopped.output(), "stopped at step "), 1) << stopped.output();
    EXPECT_EQ(count_of(stopped.output(), "saved: "), 1) << stopped.output();
    EXPECT_EQ(count_of(stopped.output(), "prun: rank"), 0) << stopped.output();

    const int last = step + further_steps;
    PrunRun whole(until(run_of(undisturbed), last));
    ASSERT_EQ(whole.process().end(), 0) << whole.output();
    const Tensors expected = saved_tensors(out_folder(undisturbed));
    EXPECT_EQ(saved_tensors(out_folder(name)).size(), expected.size());
    EXPECT_NE(saved_tensors(out_folder(name)), expected);
    PrunRun resumed(until(resumed_from(out_folder(name), words), last));
    ASSERT_EQ(resumed.process().end(), 0) << resumed.output();
    EXPECT_TRUE(contains(resumed.output(), line_of_step(step + 1, last)));
    EXPECT_FALSE(contains(resumed.output(), line_of_step(step, last)));
    EXPECT_TRUE(saved_tensors(out_folder(name)) == expected) << "other bits after " << step << " steps";
  }
}

constexpr const char* pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\nschedule = \"1f1b\"\n";
constexpr const char* zero3 =
    "[mesh]\ndp = 2\n[[strategy]]\nplugin = \"data\"\n[[strategy]]\nplugin = \"zero\"\nstage = 3\n";

// Every rank has a part of what is saved.
TEST(Stop, EveryLayoutSavesAndResumesToTheSameBits) {
  std::vector<std::string> layout_sets = sets;
  layout_sets.emplace_back("batch.micro=2");
  for (const std::string layout : {"pipeline", "zero3"}) {
    const std::string text = layout == "pipeline" ? pipeline : zero3;
    const std::string name = "stopped-" + layout, recipe = layout_file(name, text, layout_sets);
    PrunRun stopped({recipe});
    ASSERT_TRUE(stopped.process().says("step 20/")) << stopped.output();
    const int step = stopped.stop_and_save(), last = step + further_steps;
    ASSERT_GE(step, 20) << stopped.output();
    EXPECT_EQ(checkpoints_in(out_folder(name)), 1) << layout;
    EXPECT_TRUE(contains(stopped.output(), "run.resume=" + out_folder(name))) << stopped.output();
    PrunRun whole(until({layout_file("whole-" + layout, text, layout_sets)}, last));
    ASSERT_EQ(whole.process().end(), 0) << whole.output();
    PrunRun resumed(until(resumed_from(out_folder(name), {recipe}), last));
    ASSERT_EQ(resumed.process().end(), 0) << resumed.output();
    EXPECT_TRUE(contains(resumed.output(), line_of_step(step + 1, last)));
    EXPECT_TRUE(saved_tensors(out_folder(name)) == saved_tensors(out_folder("whole-" + layout)))
        << layout << ": other bits after " << step << " steps";
  }
}

// What batch systems and terminals send, more than once; SIGXCPU comes to a rank, not to the launcher.
TEST(Stop, EverySignalThatAsksForIt) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU}) {
    const std::string name = "asked-" + std::to_string(signal);
    PrunRun run({recipe_file(name, ranks, {"run.steps=1000000"})});
    ASSERT_TRUE(run.process().says("step 20/")) << run.output();
    const pid_t target = signal == SIGXCPU ? run.rank(1) : run.process().pid();
    for (int times = 0; times < 3; ++times) send_signal(target, signal);
    EXPECT_EQ(run.process().end(), 128 + signal) << run.output();
    EXPECT_EQ(checkpoints_in(out_folder(name)), 1) << run.output();
    EXPECT_EQ(count_of(run.output(), "go on with: "), 1) << run.output();
    EXPECT_EQ(count_of(run.output(), "prun: rank"), 0) << run.output();
  }
}

// Before there is anything to save.
TEST(Stop, AtAnyMomentOfTheStart) {
  for (int trial = 0; trial < (is_long() ? 40 : 8); ++trial) {
    PrunRun run({recipe_file("stop-at-start-" + std::to_string(trial), ranks, {"run.steps=1000000"})});
    ASSERT_GT(run.rank(0), 0);
    ::usleep(static_cast<useconds_t>(trial % 8) * 25'000);
    run.process().signal(SIGTERM);
    EXPECT_EQ(run.process().end(), 128 + SIGTERM) << run.output();
    EXPECT_TRUE(run.seconds_until_gone());
    EXPECT_EQ(count_of(run.output(), "prun: rank"), 0) << run.output();
  }
}

// What a shell does with all that a script puts in the background, what nohup does, and what a script asks
// for.
struct Ignored {
  const char* name;
  int signal;
  const char* start;  // the program follows, and what puts it in the background
};
constexpr Ignored ignored_ways[] = {{"SIGINT", SIGINT, ""},
                                    {"SIGHUP", SIGHUP, "nohup "},
                                    {"SIGTERM", SIGTERM, "trap '' TERM; "},
                                    {"SIGUSR1", SIGUSR1, "trap '' USR1; "}};

// Sent again and again from the instant on at which the shell has become the program (until then it is the
// shell's to ignore), to the launcher and to its ranks.
std::string disturbed(const Ignored& way, const std::string& recipe) {
  const std::string number = std::to_string(way.signal);
  return std::string(way.start) + PRUN_TEST_BINARY " " + recipe +
         " < /dev/null & run=$!; until [ $(cat /proc/$run/comm) = prun ]; do :; done; for i in $(seq 25); do "
         "kill -" +
         number + " $run; for rank in $(cat /proc/$run" + "/task/$run/children); do kill -" + number +
         " $rank; done; sleep 0.02; done 2>/dev/null; wait $run";
}

TEST(Stop, WhatIsIgnoredAtTheStartStaysIgnoredInFortyStarts) {
  for (int trial = 0; trial < 40; ++trial) {
    const Ignored& way = ignored_ways[trial % 4];
    const int size = 1 + trial / 4 % 2;
    const std::string recipe =
        recipe_file("ignores-" + std::to_string(trial), size, {"run.steps=40", "run.save_every=0"});
    const Ended ended = run_shell(disturbed(way, recipe));
    EXPECT_EQ(ended.code, 0) << trial << ", " << way.name << ", " << size << " ranks: " << ended.text;
    EXPECT_EQ(count_of(ended.text, "step 40/40 "), 1) << ended.text;
    const std::size_t said = ended.text.find("note: SIGINT");
    ASSERT_NE(said, std::string::npos) << ended.text;
    const std::string note = ended.text.substr(said, ended.text.find('\n', said) - said);
    EXPECT_LT(note.find(way.name), note.find(" ignored when this run was started")) << note;
    EXPECT_LT(said, ended.text.find("step 1/40 ")) << ended.text;
  }
}

// What each launcher gives to a rank; the other one never comes.
TEST(Stop, IsHeededAtOnceByARankThatWaitsForAnother) {
  const std::string recipe = recipe_file("waits", 2, {"run.steps=1000000"});
  const auto pod = [](int rank, int, int port) {
    return Variables{{"RANK", std::to_string(rank)},
                     {"WORLD_SIZE", "2"},
                     {"PYTHONUNBUFFERED", "1"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(port)},
                     {"PRUN_TOKEN", test_token}};
  };
  using Launcher = std::function<Variables(int rank, int world, int port)>;
  for (const Launcher& variables :
       {Launcher(torchrun_variables), Launcher(mpirun_variables), Launcher(srun_variables), Launcher(pod)})
    for (const int rank : {0, 1})
      for (const int signal : {SIGTERM, SIGINT}) {
        PrunRun run({recipe}, variables(rank, 2, free_port()));
        ASSERT_TRUE(sleeps(run.process().pid())) << run.output();
        run.process().signal(signal);
        // Far sooner than it gives up waiting.
        EXPECT_EQ(run.process().end(20), 128 + signal) << "rank " << rank << ": " << run.output();
        EXPECT_TRUE(leftovers(run.process()).empty());
      }
}

// A rank that has not come yet; prun's own launcher passes the signal on, or one rank alone has it.
TEST(Stop, IsHeededAtOnceWhereARankOfTheLauncherIsLate) {
  for (const bool to_all : {true, false}) {
    PrunRun run({recipe_file("late", ranks, {"run.steps=1000000"})});
    const pid_t late = run.rank(1), waits = run.rank(0);
    ASSERT_TRUE(send_signal(late, SIGSTOP));
    ASSERT_TRUE(sleeps(waits)) << run.output();
    send_signal(to_all ? run.process().pid() : waits, SIGTERM);
    EXPECT_EQ(run.process().end(20), 128 + SIGTERM) << run.output();
    EXPECT_TRUE(run.seconds_until_gone());
    EXPECT_EQ(count_of(run.output(), "prun: rank"), 0) << run.output();
  }
}

// By every rank, with the code for it; nobody is killed for the others' sake.
TEST(Stop, ANonFiniteGradientIsNamedAlikeOnEveryDevice) {
  std::set<std::string> said;
  for (const RunDevice& device : run_devices()) {
    std::vector<std::string> all = device.sets;
    all.insert(all.end(), {"optimizer.plugin=sgd", "optimizer.lr=1e6", "optimizer.clip=0", "run.steps=50"});
    PrunRun run(with_test_plugins(recipe_file(std::string("diverges-") + device.name, ranks, all)));
    EXPECT_EQ(run.process().end(), 15) << run.output();
    EXPECT_TRUE(run.seconds_until_gone());
    const std::size_t at = run.output().find("the gradient of '");
    ASSERT_NE(at, std::string::npos) << run.output();
    // Whichever rank is heard first: its event says no more than that, its error what to do as well.
    const std::size_t begin = run.output().rfind("step ", at), end = run.output().find(" is not finite", at);
    ASSERT_NE(end, std::string::npos) << run.output();
    said.insert(run.output().substr(begin, end - begin));
  }
  EXPECT_EQ(said.size(), 1u) << *said.begin();
}

}  // namespace
}  // namespace prun::test::stop_test
