// Commands that train all ranks to compare or to time them: where the device wants a process for each rank,
// they start processes, and say the same.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "estimate/costs_file.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// Two ranks on the device cpu-async, which is refused as threads where it is `alone`.
std::string recipe_on_async(const std::string& name, bool alone, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = {"device.plugin=cpu-async", "batch.micro=2",
                                   std::string("device.alone=") + (alone ? "true" : "false")};
  sets.insert(sets.end(), more.begin(), more.end());
  const fs::path path = temporary_folder() / (name + ".toml");
  std::ofstream(path) << tiny_recipe(sets, data_parallel(2)).resolved_toml();
  return path.string();
}

Result prun_with_test_plugins(std::vector<std::string> words, int signal = 0, const std::string& until = "") {
  words.insert(words.end(), {"--plugin-path", PRUN_TEST_PLUGINS "/test"});
  return prun(words, signal, until);
}

TEST(RankProcesses, VerifySaysWhatItSaysOfThreads) {
  for (const bool as_is : {false, true}) {
    std::string said;
    for (const bool alone : {false, true}) {
      std::vector<std::string> words = {"verify", recipe_on_async("verified", alone)};
      if (as_is) words.emplace_back("--as-is");
      const Result result = prun_with_test_plugins(words);
      EXPECT_EQ(result.code, 0) << result.out;
      EXPECT_NE(result.out.find("2 ranks against one, 3 steps"), std::string::npos) << result.out;
      EXPECT_NE(result.out.find("\nequal\n"), std::string::npos) << result.out;
      if (alone)
        EXPECT_EQ(result.out, said);
      else
        said = result.out;
    }
  }
}

// A rate so high that roundings in another order show in parameters, whose bound is no relative one.
TEST(RankProcesses, VerifyFindsTheSameDifference) {
  std::string said;
  for (const bool alone : {false, true}) {
    const Result result =
        prun_with_test_plugins({"verify", recipe_on_async("different", alone, {"optimizer.lr=1e5"})});
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_NE(result.out.find("NOT EQUAL"), std::string::npos) << result.out;
    if (alone)
      EXPECT_EQ(result.out, said);
    else
      said = result.out;
  }
}

TEST(RankProcesses, KernelsAndExchangesOfALayoutAreTimed) {
  const fs::path costs = temporary_folder() / "processes.json";
  const std::vector<std::string> words = {
      "bench", "kernels", recipe_on_async("timed", true), "--no-grid", "--json", "--out", costs.string()};
  const Result result = prun_with_test_plugins(words);
  ASSERT_EQ(result.code, 0) << result.out;
  const CostTable table = read_costs(costs).value();
  EXPECT_EQ(result.out, to_json(table) + "\n");
  EXPECT_GT(table.exact.size(), 10u);
  EXPECT_GT(table.exact_exchanges.size(), 1u);
  for (const auto& [exchange, time] : table.exact_exchanges) {
    EXPECT_EQ(exchange.device, "cpu-async");
    EXPECT_GT(time.seconds + time.lateness, 0) << exchange.queue;
  }
  // Ranks that have cores of their own do not take the table for another machine's.
  const Result again = prun_with_test_plugins(words);
  EXPECT_EQ(again.code, 0) << again.out;
}

// A device is told of a benched step what it is told of any: that its queues wait for others, and that
// threads copy for a comm plugin which moves the host's memory. The process that starts the ranks leaves
// their devices alone.
TEST(RankProcesses, APipelineOverTheHostsMemoryIsTimedAsItRuns) {
  const fs::path path = temporary_folder() / "staged.toml", costs = temporary_folder() / "staged.json";
  std::ofstream(path) << tiny_recipe(
                             {"device.plugin=cpu-async", "device.alone=true", "device.ranks_only=true",
                              "device.tells=true", "device.depth=16", "batch.micro=1", "comm.default=ucx"},
                             "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\n")
                             .resolved_toml();
  const Result result =
      prun_with_test_plugins({"bench", "kernels", path.string(), "--no-grid", "--out", costs.string()});
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("others are waited for, threads copy"), std::string::npos) << result.out;
  const CostTable table = read_costs(costs).value();
  EXPECT_GT(table.exact_exchanges.size(), 1u);
  EXPECT_GT(table.overheads.at("cpu-async").handoff, 0);
}

TEST(RankProcesses, ExchangesOfARecipeAreTimed) {
  const fs::path costs = temporary_folder() / "exchanges.json";
  const Result result =
      prun_with_test_plugins({"bench", "comm", recipe_on_async("exchanges", true), "--out", costs.string()});
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_EQ(
      result.out.find("exchanges of cpu-async, between processes of this host\nall_reduce       among 2: "),
      0u)
      << result.out;
  const CostTable table = read_costs(costs).value();
  EXPECT_EQ(table.exchanges.size(), 6u);
  EXPECT_TRUE(table.has_exchanges_of("cpu-async"));
  fs::remove(costs);
  const Result for_programs = prun_with_test_plugins(
      {"bench", "comm", recipe_on_async("exchanges", true), "--json", "--out", costs.string()});
  EXPECT_EQ(for_programs.out, to_json(read_costs(costs).value()) + "\n");
}

TEST(RankProcesses, ATraceHasTheQueuesOfAllRanks) {
  std::string queues;
  for (const bool alone : {false, true}) {
    const fs::path file = temporary_folder() / "processes.trace.json";
    const Result result = prun_with_test_plugins(
        {"trace", recipe_on_async("traced", alone), "--steps", "2", "--out", file.string()});
    ASSERT_EQ(result.code, 0) << result.out;
    EXPECT_NE(result.out.find("rank 1: "), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("ranks are threads of this process") == std::string::npos, alone) << result.out;
    const JsonValue trace = parse_json(read_file(file), "trace");
    std::string seen;
    std::size_t calls = 0;
    for (const JsonValue& event : trace.at("traceEvents").as_array())
      if (event.at("ph").as_string() == "M")
        seen += std::to_string(event.at("pid").as_int64()) + event.at("args").at("name").as_string() + "\n";
      else
        calls += event.at("cat").as_string() == "call";
    EXPECT_GT(calls, 20u);
    if (alone)
      EXPECT_EQ(seen, queues);
    else
      queues = seen;
  }
}

TEST(RankProcesses, WhatARankRefusesIsSaidOnce) {
  const std::string recipe =
      recipe_on_async("refused", true, {"device.fail_after=9", "device.fail_queue=compute"});
  const Result result = prun_with_test_plugins({"verify", recipe});
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_NE(result.out.find("queue compute: injected failure"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("prun: rank "), 0u) << result.out;
}

TEST(RankProcesses, WhatNoRankCanIsSaidBeforeTheyStart) {
  const std::string recipe = recipe_on_async("units", true, {"device.units=1"});
  const Result result = prun_with_test_plugins({"verify", recipe});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_EQ(
      result.out,
      "prun: each of the 2 ranks takes a unit of device 'cpu-async', and this machine has 1; take as many "
      "ranks, or device.plugin = \"cpu\"\n");
}

TEST(RankProcesses, NoneStartsOnADeviceThatIsNotHere) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string recipe = recipe_on_async("absent", false, {"device.absent=true"});
    const Result result = prun_with_test_plugins({recipe, "--set", "mesh.dp=" + ranks});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_EQ(result.out,
              "prun: cannot train on cpu-async; set device.plugin = \"auto\", which takes what is here\n");
  }
}

// Of a machine with two units: what is on record was loaded by a rank, and stays in its memory.
TEST(RankProcesses, LoadNoDeviceThatTheLauncherHasNotChosen) {
  const fs::path out = temporary_folder() / "chosen", file = temporary_folder() / "chosen.toml";
  std::string text =
      tiny_recipe({"batch.micro=1", "batch.global=6", "run.steps=1", "run.out=" + out.string()},
                  data_parallel(3))
          .resolved_toml();
  const std::size_t device = text.find("[device]");
  text.erase(device, text.find("\n[", device) - device);
  std::ofstream(file) << text;
  const Result result = prun({file.string(), "--plugin-path", PRUN_TEST_PLUGINS "/test/auto"});
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("auto stands for device cpu and comm ucx; device cuda: "), std::string::npos)
      << result.out;
  std::ostringstream record;
  record << std::ifstream(out / "plugins.json").rdbuf();
  EXPECT_NE(record.str().find("\"cpu\""), std::string::npos) << record.str();
  EXPECT_EQ(record.str().find("\"cuda\""), std::string::npos) << record.str();
}

// Late enough for ranks to be there, on a machine that has other things to do as well.
TEST(RankProcesses, ASignalEndsThemAllAndLeavesNothing) {
  const TempFolder folder;
  const Result result =
      shell("TMPDIR=" + folder.path() + " timeout --preserve-status -s INT 6 $PRUN verify " +
            recipe_on_async("stopped", true) + " --steps 100000000 --plugin-path " PRUN_TEST_PLUGINS "/test");
  EXPECT_EQ(result.code, 128 + SIGINT) << result.out;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace prun::test
