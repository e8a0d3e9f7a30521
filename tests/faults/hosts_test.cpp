// Ranks that others start: on two hosts with a cable between them, by Slurm, by Open MPI. What each takes is
// in the script of that name beside this file; where a script cannot run here, its test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "estimate/costs_file.hpp"
#include "runs.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::hosts_test {
namespace {

constexpr int cannot_run = 77;
constexpr const char* scripts = PRUN_SOURCE_DIR "/tests/faults/";

struct Outcome {
  int code = -1;
  std::string text;
};

Outcome run_script(const std::string& words) {
  Outcome outcome;
  FILE* pipe = ::popen((scripts + words + " 2>&1").c_str(), "r");
  if (!pipe) return outcome;
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

// "slurm FOLDER PRUN RECIPE"
Outcome run_script(const std::string& script, const TempFolder& folder, const std::string& recipe) {
  return run_script(script + " " + folder.path() + " " PRUN_TEST_BINARY " " + recipe);
}

// Two ranks in fp64, and one that does the same batches alone.
std::string two_ranks(const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = {"precision.compute=fp64", "precision.state=fp64", "run.steps=30",
                                   "run.save_every=30"};
  sets.insert(sets.end(), more.begin(), more.end());
  return recipe_file(name, 2, sets);
}

Tensors saved_by_one_rank() {
  const std::string recipe = recipe_file("one-rank", 1,
                                         {"precision.compute=fp64", "precision.state=fp64", "run.steps=30",
                                          "run.save_every=30", "batch.global=8"});
  PrunRun run({recipe});
  EXPECT_EQ(run.process().end(), 0) << run.output();
  return saved_tensors(out_folder("one-rank"));
}

// Of the lines "step 7/30 | loss ... | 3.83 ms | eta 0s".
double median_step_ms(const std::string& text) {
  std::vector<double> times;
  for (std::size_t at = 0; (at = text.find(" ms | ", at)) != std::string::npos; ++at)
    times.push_back(std::atof(text.c_str() + text.rfind(' ', at - 1)));
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void expect_equal_to_one_rank(const std::string& name) {
  const Tensors alone = saved_by_one_rank();
  ASSERT_FALSE(alone.empty());
  const double difference = largest_difference(saved_tensors(out_folder(name)), alone);
  EXPECT_LT(difference, 1e-9);
  std::printf("largest difference to one rank: %.2e\n", difference);
}

// 64 MiB take half a second over 1 Gbit/s, and hundredths of that between threads of a host.
TEST(Hosts, ExchangesAreMeasuredOverTheCable) {
  const TempFolder folder;
  const std::string command =
      folder.write("bench", "#!/bin/sh\nexec " PRUN_TEST_BINARY " bench comm \"$1\" --out " + folder.path() +
                                "/costs.json\n");
  std::filesystem::permissions(command, std::filesystem::perms::owner_all);
  const std::string recipe = two_ranks("measured-hosts", {"device.threads=1"});
  const Outcome outcome = run_script("two_hosts run " + folder.path() + " " + command + " " + recipe);
  if (outcome.code == cannot_run) GTEST_SKIP() << outcome.text;
  const std::string said = read_file(folder / "rank-0.txt");
  ASSERT_EQ(outcome.code, 0) << outcome.text << said << read_file(folder / "rank-1.txt");
  EXPECT_TRUE(contains(said, "between 2 ranks on 2 hosts")) << said;
  const CostTable table = *read_costs(folder / "costs.json");
  EXPECT_GT(table.exchanges.at({CommKind::send, 2, host_exchanges, true}).seconds(64 << 20), 0.3) << said;
  EXPECT_FALSE(table.has_exchanges_of(host_exchanges)) << "nothing was measured within a host";
}

TEST(Hosts, TwoWithACableDoWhatOneRankDoes) {
  const TempFolder folder;
  const Outcome outcome = run_script("two_hosts run", folder, two_ranks("two-hosts"));
  if (outcome.code == cannot_run) GTEST_SKIP() << outcome.text;
  const std::string said = read_file(folder / "rank-0.txt");
  ASSERT_EQ(outcome.code, 0) << outcome.text << said << read_file(folder / "rank-1.txt");
  EXPECT_TRUE(contains(said, "axis dp goes by ucx: tcp (")) << said;
  expect_equal_to_one_rank("two-hosts");
  std::printf("%sstep of the tiny model: %.2f ms median\n", outcome.text.c_str(), median_step_ms(said));
}

TEST(Hosts, BothEndWithASentenceWhenTheCableIsCut) {
  const TempFolder folder;
  const std::string recipe = two_ranks("cut", {"run.steps=1000000"});
  const Outcome outcome = run_script("two_hosts cut", folder, recipe);
  if (outcome.code == cannot_run) GTEST_SKIP() << outcome.text;
  std::printf("%s", outcome.text.c_str());
  for (int rank = 0; rank < 2; ++rank) {
    const std::string said = read_file(folder / ("rank-" + std::to_string(rank) + ".txt"));
    const std::string ended = "rank " + std::to_string(rank) + " ended with ", word = " after ";
    const std::size_t at = outcome.text.find(ended);
    ASSERT_NE(at, std::string::npos) << outcome.text;
    EXPECT_EQ(std::atoi(outcome.text.c_str() + at + ended.size()), 12) << outcome.text << said;
    EXPECT_LT(std::atof(outcome.text.c_str() + outcome.text.find(word, at) + word.size()), latest)
        << outcome.text;
    const std::string sentence = "prun: rank " + std::to_string(rank) + ": ";
    ASSERT_TRUE(contains(said, sentence)) << said;
    const std::string line =
        said.substr(said.find(sentence), said.find('\n', said.find(sentence)) - said.find(sentence));
    EXPECT_TRUE(contains(line, "its host or the network between is gone") ||
                contains(line, "the connection is lost"))
        << said;
    std::printf("%s\n", line.c_str());
  }
}

void starts_ranks_as_it_is(const std::string& launcher) {
  const TempFolder folder;
  const Outcome outcome = run_script(launcher, folder, two_ranks(launcher));
  if (outcome.code == cannot_run) GTEST_SKIP() << outcome.text;
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(count_of(outcome.text, "step 30/30 "), 1) << outcome.text;
  expect_equal_to_one_rank(launcher);
}

TEST(Hosts, SlurmStartsRanksAsItIs) { starts_ranks_as_it_is("slurm"); }
TEST(Hosts, OpenMpiStartsRanksAsItIs) { starts_ranks_as_it_is("mpirun"); }
TEST(Hosts, TorchrunStartsRanksAsItIs) { starts_ranks_as_it_is("torchrun"); }

// Where those tools are not, the commands at least stand in the document as the scripts take them.
TEST(Hosts, TheDocumentHasACommandForEachLauncher) {
  for (const char* tool : {"srun", "mpirun", "torchrun"}) {
    const Outcome outcome = run_script(detail::concat("documented ", tool, " THE-PROGRAM THE-RECIPE"));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(outcome.text.rfind(tool, 0), 0u) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, " THE-PROGRAM THE-RECIPE\n")) << outcome.text;
  }
}

// What Kubeflow's training operator sets in the pods of a PyTorchJob; newer ones set more.
Variables pod_variables(int pod, int pods, int port, bool newer) {
  Variables variables = {{"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port)},
                         {"PYTHONUNBUFFERED", "1"},
                         {"RANK", std::to_string(pod)},
                         {"WORLD_SIZE", std::to_string(newer ? pods * 8 : pods)},
                         {"PRUN_TOKEN", test_token}};
  if (newer) {
    variables.emplace_back("PET_NNODES", std::to_string(pods));
    variables.emplace_back("PET_NODE_RANK", std::to_string(pod));
    variables.emplace_back("PET_NPROC_PER_NODE", "8");
  }
  return variables;
}

TEST(Hosts, APodIsARank) {
  const std::string recipe = two_ranks("pods");
  const int port = free_port();
  PrunRun first({recipe}, pod_variables(0, 2, port, false)),
      second({recipe}, pod_variables(1, 2, port, false));
  EXPECT_EQ(first.process().end(), 0) << first.output();
  EXPECT_EQ(second.process().end(), 0) << second.output();
  expect_equal_to_one_rank("pods");
}

TEST(Hosts, APodStartsItsShareOfTheRanks) {
  const std::vector<std::string> sets = {"run.steps=5", "run.save_every=5"};
  PrunRun alone({recipe_file("here", 4, sets)});
  EXPECT_EQ(alone.process().end(), 0) << alone.output();
  for (const bool newer : {false, true}) {
    const std::string name = newer ? "shares-newer" : "shares", recipe = recipe_file(name, 4, sets);
    const int port = free_port();
    PrunRun first({recipe}, pod_variables(0, 2, port, newer)),
        second({recipe}, pod_variables(1, 2, port, newer));
    EXPECT_EQ(first.process().end(), 0) << first.output();
    EXPECT_EQ(second.process().end(), 0) << second.output();
    EXPECT_EQ(count_of(first.output() + second.output(), "step 5/5 "), 1) << first.output();
    EXPECT_EQ(largest_difference(saved_tensors(out_folder(name)), saved_tensors(out_folder("here"))), 0);
    EXPECT_TRUE(first.seconds_until_gone() && second.seconds_until_gone());
  }
}

TEST(Hosts, APodWhoseRankDiesEndsAndSoDoTheOthers) {
  const std::string recipe = recipe_file("dies", 4, {"run.steps=1000000"});
  const int port = free_port();
  PrunRun first({recipe}, pod_variables(0, 2, port, false)),
      second({recipe}, pod_variables(1, 2, port, false));
  ASSERT_TRUE(first.process().says("step 2/")) << first.output();
  const pid_t victim = second.process_with("RANK=3");
  ASSERT_TRUE(send_signal(victim, SIGKILL));
  EXPECT_EQ(second.process().end(), 10) << second.output();
  EXPECT_TRUE(contains(second.output(), " was killed by signal 9 (SIGKILL)")) << second.output();
  EXPECT_EQ(first.process().end(), 12) << first.output();
  EXPECT_TRUE(first.seconds_until_gone() && second.seconds_until_gone());
}

TEST(Hosts, PodsThatCannotHaveAsManyRanksEachAreRefused) {
  PrunRun run({recipe_file("three", 3)}, pod_variables(0, 2, free_port(), false));
  EXPECT_EQ(run.process().end(), 2);
  EXPECT_TRUE(contains(run.output(), "cannot divide the 3 ranks of the mesh equally among 2 pods"))
      << run.output();
}

TEST(Hosts, TorchrunsVariablesByHandDoTheSame) {
  const std::string recipe = two_ranks("by-hand");
  const int port = free_port();
  PrunRun first({recipe}, torchrun_variables(0, 2, port)), second({recipe}, torchrun_variables(1, 2, port));
  EXPECT_EQ(first.process().end(), 0) << first.output();
  EXPECT_EQ(second.process().end(), 0) << second.output();
  expect_equal_to_one_rank("by-hand");
}

}  // namespace
}  // namespace prun::test::hosts_test
