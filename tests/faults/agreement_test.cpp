// Ranks that would not do the same: what they read and what they run is compared before the first step.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runs.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::agreement_test {
namespace {

namespace fs = std::filesystem;

// Both end with code 2 and this in what they say.
void expect_refusal(PrunRun& first, PrunRun& second, const std::string& sentence) {
  for (PrunRun* run : {&first, &second}) {
    EXPECT_EQ(run->process().end(), 2) << run->output();
    EXPECT_TRUE(contains(run->output(), sentence)) << run->output();
    EXPECT_FALSE(contains(run->output(), "step 1/")) << run->output();
  }
}

// A rank whose working folder is that one.
PrunRun rank_in(const std::string& folder, const std::string& recipe, int rank, int port) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  PrunRun run({recipe}, torchrun_variables(rank, 2, port));
  fs::current_path(before);
  return run;
}

TEST(Agreement, AnotherTextBehindTheSamePathIsNamed) {
  const std::string recipe = recipe_file("other-data", 2, {"data.path=tokens.bin"});
  const std::string tokens = read_file((temporary_folder() / "tokens.bin").string());
  const TempFolder one, other;
  one.write("tokens.bin", tokens);
  const auto refused = [&](const std::string& sentence) {
    const int port = free_port();
    PrunRun first = rank_in(one.path(), recipe, 0, port), second = rank_in(other.path(), recipe, 1, port);
    expect_refusal(first, second, "rank 0 and rank 1 read different data: " + sentence);
  };
  std::string changed = tokens;
  changed[1024 + 2 * 1248 * 16] ^= 1;
  other.write("tokens.bin", changed);
  refused("digest of sample 1248 of data is ");
  std::string shorter = tokens.substr(0, tokens.size() - 2000);
  const std::int32_t count = 19000;
  shorter.replace(8, 4, reinterpret_cast<const char*>(&count), 4);
  other.write("tokens.bin", shorter);
  refused("number of samples of data is 12");
}

// Ranks of a launcher measure between each other, and the first has the table.
TEST(Agreement, RanksOfALauncherMeasureTheirExchangesTogether) {
  const std::string recipe = recipe_file("measured", 2, {"device.threads=1"});
  const TempFolder folder;
  const std::string costs = folder / "costs.json";
  const int port = free_port();
  PrunRun first({"bench", "comm", recipe, "--out", costs}, torchrun_variables(0, 2, port)),
      second({"bench", "comm", recipe, "--out", costs}, torchrun_variables(1, 2, port));
  EXPECT_EQ(first.process().end(), 0) << first.output();
  EXPECT_EQ(second.process().end(), 0) << second.output();
  EXPECT_TRUE(contains(first.output(), "between 2 ranks on 1 host")) << first.output();
  EXPECT_FALSE(contains(second.output(), "wrote ")) << second.output();
  EXPECT_TRUE(contains(read_file(costs), "\"kind\":\"all_reduce\",\"members\":2")) << read_file(costs);
}

// As where `auto` stands for another one on each host.
TEST(Agreement, AnotherDeviceIsNamed) {
  const int port = free_port();
  const auto start = [&](int rank, const std::string& device) {
    const std::string recipe = recipe_file("on-" + device, 2, {"device.plugin=" + device});
    return PrunRun({recipe, "--plugin-path", PRUN_TEST_PLUGINS "/test"}, torchrun_variables(rank, 2, port));
  };
  PrunRun first = start(0, "cpu"), second = start(1, "cpu-async");
  expect_refusal(first, second, "rank 0 and rank 1 run on different devices: device.plugin is ");
}

TEST(Agreement, AnotherBuildOfAPluginIsNamed) {
  const std::string recipe = recipe_file("other-build", 2);
  for (const std::string name : {"optimizer", "data"}) {
    const TempFolder folder;
    for (const auto& entry : fs::directory_iterator(PRUN_TEST_PLUGINS))
      if (const std::string file = entry.path().filename();
          contains(file, name == "data" ? "data_tokens" : "optimizer_adamw"))
        folder.write(file, read_file(entry.path().string()) + "another build");
    ASSERT_FALSE(fs::is_empty(folder.path()));
    const int port = free_port();
    PrunRun first({recipe}, torchrun_variables(0, 2, port));
    PrunRun second({recipe, "--plugin-path", folder.path()}, torchrun_variables(1, 2, port));
    const std::string plugin = name == "data" ? "data plugin 'tokens'" : "optimizer plugin 'adamw'";
    expect_refusal(first, second, "rank 0 and rank 1 run different builds of a plugin: " + plugin + " is ");
  }
}

}  // namespace
}  // namespace prun::test::agreement_test
