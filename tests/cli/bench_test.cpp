// prun bench zero and offload: real ranks at every setting, and what is said of them. prun bench io: real
// files.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// Two ranks, two microbatches, each rank with one thread.
std::string two_ranks(const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all = {"device.threads=1", "batch.micro=1"};
  all.insert(all.end(), sets.begin(), sets.end());
  const fs::path path = temporary_folder() / "two_ranks.toml";
  std::ofstream(path) << tiny_recipe(all, data_parallel(2)).resolved_toml();
  return path.string();
}

// As `prun plan` has it of the recipe at a stage.
JsonValue plan_at(const std::string& recipe, std::int64_t stage) {
  return parse_json(prun({"plan", recipe, "--json", "--set", "strategy.1.plugin=zero", "--set",
                          "strategy.1.stage=" + std::to_string(stage)})
                        .out,
                    "plan");
}

std::int64_t planned_traffic(const JsonValue& plan) {
  std::int64_t bytes = 0;
  for (const JsonMember& queue : plan.at("sent_bytes").as_object().members())
    bytes += queue.value.at("bytes").as_int64();
  return bytes;
}

TEST(BenchKernels, ASettingWithoutARecipeIsRefused) {
  for (const char* const what : {"kernels", "comm"}) {
    const Result result = prun({"bench", what, "--set", "device.threads=1"});
    EXPECT_EQ(result.code, 2) << what;
    EXPECT_NE(result.out.find("cannot set device.threads=1"), std::string::npos) << result.out;
  }
}

TEST(BenchZero, EveryStageIsTrainedAndSendsWhatItsPlanSays) {
  const TempFolder folder;
  const std::string recipe = two_ranks(), file = folder / "stages.json";
  const Result result = prun({"bench", "zero", recipe, "--steps", "6", "--out", file});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(read_file(file), "stages");
  EXPECT_EQ(said.at("recipe").as_string(), "tiny");
  const JsonArray& stages = said.at("stages").as_array();
  ASSERT_EQ(stages.size(), 4u);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const JsonValue& stage = stages[i];
    const JsonValue plan = plan_at(recipe, static_cast<std::int64_t>(i));
    EXPECT_EQ(stage.at("stage").as_int64(), static_cast<std::int64_t>(i));
    EXPECT_EQ(stage.at("sent_bytes").as_int64(), planned_traffic(plan)) << i;
    EXPECT_EQ(stage.at("planned_bytes").as_int64(),
              plan.at("memory_bytes").as_int64() + plan.at("process_bytes").as_int64())
        << i;
    EXPECT_GT(stage.at("measured_bytes").as_int64(), 0) << i;
    const double seconds = stage.at("step_seconds").as_double(), tokens = 4 * 16;
    EXPECT_NEAR(stage.at("tokens_per_second").as_double() * seconds, tokens, 1e-6) << i;
    EXPECT_GE(stage.at("exposed_seconds").as_double(), 0) << i;
    EXPECT_NE(result.out.find("\n" + std::to_string(i) + " "), std::string::npos) << result.out;
  }
  EXPECT_GT(stages[3].at("sent_bytes").as_int64(), stages[2].at("sent_bytes").as_int64());
  EXPECT_GT(stages[2].at("sent_bytes").as_int64(), stages[1].at("sent_bytes").as_int64());
  EXPECT_FALSE(fs::exists(temporary_folder() / "run"));
}

TEST(BenchZero, StageZeroIsTheRecipeWithoutTheStrategy) {
  const std::string recipe = two_ranks();
  EXPECT_EQ(
      prun({"plan", recipe, "--json", "--set", "strategy.1.plugin=zero", "--set", "strategy.1.stage=0"}).out,
      prun({"plan", recipe, "--json"}).out);
}

TEST(BenchZero, AStageThatDoesNotFitIsALineOfItsOwn) {
  const TempFolder folder;
  const std::string recipe = two_ranks({"model.hidden=256", "model.layers=6"}), file = folder / "stages.csv";
  const std::int64_t whole = plan_at(recipe, 0).at("memory_bytes").as_int64(),
                     parts = plan_at(recipe, 3).at("memory_bytes").as_int64();
  ASSERT_LT(parts, whole);
  const Result result = prun({"bench", "zero", recipe, "--steps", "3", "--out", file, "--set",
                              "device.memory=" + std::to_string((whole + parts) / 2)});
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("\n0      refused: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("the plan needs "), std::string::npos) << result.out;
  const std::string csv = read_file(file);
  EXPECT_NE(csv.find("\n0,,,,,,\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n3,"), std::string::npos) << csv;
  EXPECT_EQ(csv.find("\n3,,"), std::string::npos) << csv;
}

TEST(BenchZero, OneStageAsJson) {
  const Result result = prun({"bench", "zero", two_ranks(), "--setting", "2", "--steps", "3", "--json"});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(result.out, "stages");
  ASSERT_EQ(said.at("stages").as_array().size(), 1u);
  EXPECT_EQ(said.at("stages").as_array()[0].at("stage").as_int64(), 2);
}

TEST(BenchZero, WhatCannotBeMeasuredIsRefused) {
  const std::string recipe = two_ranks();
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"bench", "zero", recipe, "--setting", "4"}, "--setting takes 0, 1, 2 or 3, not '4'"},
      {{"bench", "zero", recipe, "--steps", "2"}, "--steps takes at least 3 steps here, not 2"},
      {{"bench", "zero", recipe, "--out", "stages.txt"},
       "stages.txt: a file that ends in .json, .csv or .md"},
      {{"bench", "zero", recipe, "--set", "mesh.dp=1", "--set", "batch.micro=4"}, "has one rank"},
      {{"bench", "offload", recipe, "--setting", "some"},
       "--setting takes none, optimizer, all, nvme-optimizer or nvme-all, not 'some'"},
      {{"bench", "zreo", recipe}, "'zreo' is no strategy that lists settings to bench; did you mean 'zero'?"},
      {{"bench", "tensor", recipe}, "is no strategy that lists settings to bench"},
      {{"bench", "settings", recipe, "--key", "batch.micro"}, "needs --values VALUES"},
      {{"bench", "zero"}, "usage: "}};
  for (const auto& [words, said] : cases) {
    const Result result = prun(words);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_NE(result.out.find(said), std::string::npos) << result.out;
  }
}

// Its note lists what is tried.
TEST(BenchSettings, AThirdPartysStrategyIsBenched) {
  const TempFolder folder;
  const std::string recipe = folder / "own.toml";
  std::ofstream(recipe) << tiny_recipe({"device.threads=1"},
                                       "[[strategy]]\nplugin = 'reader'\nop = 'linear'\n")
                               .resolved_toml();
  const Result result =
      prun({"bench", "reader", recipe, "--steps", "3", "--json", "--plugin-path", PRUN_TEST_PLUGINS "/test"});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(result.out, "operands");
  const JsonArray& operands = said.at("operands").as_array();
  ASSERT_EQ(operands.size(), 2u);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    EXPECT_EQ(operands[i].at("operand").as_int64(), static_cast<std::int64_t>(i));
    EXPECT_GT(operands[i].at("step_seconds").as_double(), 0) << i;
  }
  const Result help = prun({"help", "bench", "--plugin-path", PRUN_TEST_PLUGINS "/test"});
  EXPECT_NE(help.out.find("bench reader RECIPE: 0, 1; "), std::string::npos) << help.out;
}

TEST(BenchSettings, AnyKeyAtAnyValues) {
  const Result result = prun({"bench", "settings", two_ranks(), "--key", "batch.micro", "--values", "1, 2,4",
                              "--steps", "3", "--json"});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(result.out, "settings");
  const JsonArray& settings = said.at("settings").as_array();
  ASSERT_EQ(settings.size(), 3u);
  EXPECT_GT(settings[1].at("planned_bytes").as_int64(), settings[0].at("planned_bytes").as_int64());
  EXPECT_NE(settings[2].at("refused").as_string().find("not a multiple of batch.micro"), std::string::npos);
}

// One rank will do; gradients leave once a step. What the recipe leaves to the planner is said here.
TEST(BenchOffload, EverySettingIsTrainedAndSaysWhereItsBytesAre) {
  const TempFolder folder;
  const std::string path = folder / "one.toml", file = folder / "settings.json",
                    table = folder / "settings.csv";
  std::ofstream(path) << tiny_recipe({"device.threads=1"},
                                     "[[strategy]]\nplugin = 'offload'\nmode = 'auto'\n"
                                     "[tier.nvme]\npaths = ['" +
                                         folder.path() + "']\n")
                             .resolved_toml();
  const Result result = prun({"bench", "offload", path, "--steps", "3", "--out", file});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(read_file(file), "settings");
  const JsonArray& settings = said.at("settings").as_array();
  const char* const names[] = {"none", "optimizer", "all", "nvme-optimizer", "nvme-all"};
  ASSERT_EQ(settings.size(), std::size(names));
  EXPECT_EQ(settings[0].at("beyond_first_seconds").as_double(), 0);
  std::int64_t host = 0, moved = 0, disk = 0, drives_moved = 0;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    EXPECT_EQ(settings[i].at("setting").as_string(), names[i]);
    EXPECT_NE(result.out.find(std::string("\n") + names[i] + " "), std::string::npos) << result.out;
    EXPECT_GT(settings[i].at("step_seconds").as_double(), 0) << i;
    EXPECT_TRUE(settings[i].find("beyond_first_seconds")) << i;
    const std::int64_t host_now = settings[i].at("host_bytes").as_int64(),
                       moved_now = settings[i].at("moved_bytes").as_int64(),
                       disk_now = settings[i].at("disk_bytes").as_int64(),
                       drives_now = settings[i].at("drives_moved_bytes").as_int64();
    if (i < 3) {  // more and more in the host's memory
      EXPECT_GT(host_now, host) << i;
      EXPECT_GT(moved_now, moved) << i;
      EXPECT_EQ(disk_now + drives_now, 0) << i;
    } else {
      EXPECT_GT(disk_now, disk) << i;
      EXPECT_GT(drives_now, drives_moved) << i;
    }
    host = host_now, moved = moved_now, disk = disk_now, drives_moved = drives_now;
  }
  const Result one = prun({"bench", "offload", path, "--steps", "3", "--setting", "all", "--out", table});
  ASSERT_EQ(one.code, 0) << one.out;
  EXPECT_NE(read_file(table).find("drives_moved_bytes,beyond_first_seconds\nall,"), std::string::npos);
}

// ---------------------------------------------------------------- kernels

// A plan has the share of the cores that a rank has in a run, and so has what is measured for it.
TEST(BenchKernels, RanksHaveTheCoresOfTheirRun) {
  const TempFolder folder;
  const std::string recipe = two_ranks({"device.threads=0"}), costs = folder / "costs.json";
  const Result measured = prun({"bench", "kernels", recipe, "--no-grid", "--out", costs});
  ASSERT_EQ(measured.code, 0) << measured.out;
  const Result planned = prun({"plan", recipe, "--json", "--costs", costs});
  ASSERT_EQ(planned.code, 0) << planned.out;
  const JsonValue prediction = parse_json(planned.out, "plan").at("prediction");
  EXPECT_GT(prediction.at("step_seconds").as_double(), 0);
  const std::int64_t cores = parse_json(read_file(costs), "costs").at("machine").at("cores").as_int64();
  if (cores < 2) return;
  const std::string all_of_them = "cpu: " + std::to_string(cores) + " threads, ";
  EXPECT_EQ(read_file(costs).find(all_of_them), std::string::npos) << read_file(costs);
}

// Before a rank starts, as of a run.
TEST(BenchKernels, TooFewOpenFilesAreRefusedWithTheNumber) {
  for (const std::string what : {"kernels", "comm"}) {
    const Result few = shell("ulimit -n 24; $PRUN bench " + what + " " + two_ranks() + " --out " +
                             (temporary_folder() / "few.json").string());
    EXPECT_EQ(few.code, 2) << few.out;
    EXPECT_NE(few.out.find("open files, 24 are allowed here; raise the limit (ulimit -n)"), std::string::npos)
        << few.out;
  }
}

// ---------------------------------------------------------------- recipes

std::string saved_recipe(const TempFolder& folder, const std::string& name,
                         const std::vector<std::string>& sets, const std::string& more = {}) {
  return folder.write(name, tiny_recipe(sets, more).resolved_toml());
}

// One of three recipes at two sizes cannot be run: its row says so once, and the others have their rows.
TEST(BenchRecipes, OneTableComparesThemAtEachSize) {
  const TempFolder folder;
  const std::vector<std::string> small = {"device.threads=1", "batch.micro=1"};
  const std::string one = saved_recipe(folder, "one.toml", small),
                    two = saved_recipe(folder, "two.toml", small, data_parallel(2)),
                    odd = saved_recipe(folder, "odd.toml",
                                       {"device.threads=1", "batch.micro=4", "device.memory=1KiB"});
  const std::string table = folder / "table.md", json = folder / "table.json";
  const std::vector<std::string> words = {
      "bench",   "recipes", one,        two, odd, "--each", "model.layers+model.hidden=1+32,2+64",
      "--steps", "4",       "--rounds", "2"};
  std::vector<std::string> first = words;
  first.insert(first.end(), {"--out", json});
  const Result result = prun(first);
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(read_file(json), "table");
  for (const char* key : {"command", "date", "version", "machine"})
    EXPECT_FALSE(said.at(key).as_string().empty()) << key;
  EXPECT_EQ(said.at("steps").as_int64(), 4);
  const JsonArray& rows = said.at("recipes").as_array();
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const JsonValue& row = rows[i];
    EXPECT_EQ(row.at("size").as_string(),
              i < 3 ? "model.layers=1 model.hidden=32" : "model.layers=2 model.hidden=64");
    if (i % 3 == 2) {
      EXPECT_EQ(row.at("refused").as_string().find('\n'), std::string::npos);
      EXPECT_EQ(row.find("step_seconds"), nullptr);
      continue;
    }
    EXPECT_EQ(row.at("ranks").as_int64(), i % 3 == 0 ? 1 : 2);
    EXPECT_GT(row.at("step_seconds").as_double(), 0);
    EXPECT_GE(row.at("spread").as_double(), 0);
    EXPECT_EQ(row.at("round_step_seconds").as_array().size(), 2u);
    EXPECT_EQ(row.at("tokens").as_int64(), 4 * 16);
    EXPECT_GT(row.at("memory").at("parameters").as_int64(), 0);
    if (i % 3 == 0) {
      EXPECT_DOUBLE_EQ(row.at("speed").as_double(), 1);
    }
  }
  EXPECT_LT(rows[0].at("parameters").as_int64(), rows[3].at("parameters").as_int64());
}

TEST(BenchSettings, ATableOfMarkdownHasOneLineForEach) {
  const TempFolder folder;
  const std::string table = folder / "table.md";
  const Result result = prun({"bench", "settings", two_ranks(), "--key", "batch.micro", "--values", "1,3",
                              "--steps", "3", "--out", table});
  ASSERT_EQ(result.code, 0) << result.out;
  const std::string text = read_file(table);
  EXPECT_NE(text.find("| setting | a step |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 3 | refused: "), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 2 + 2) << text;
}

TEST(BenchRecipes, ATableOfMarkdownSaysHowItWasMade) {
  const TempFolder folder;
  const std::string one = saved_recipe(folder, "one.toml", {"device.threads=1"}), table = folder / "table.md";
  const Result result = prun({"bench", "recipes", one, "--steps", "3", "--rounds", "1", "--out", table});
  ASSERT_EQ(result.code, 0) << result.out;
  const std::string text = read_file(table);
  EXPECT_NE(text.find("| recipe | size | ranks | a step | spread | tokens/s | speed |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("`prun bench recipes " + one), std::string::npos) << text;
  for (const char* each : {"model.layers", "model.layers=", "a+b=1"})
    EXPECT_EQ(prun({"bench", "recipes", one, "--each", each}).code, 2) << each;
  EXPECT_EQ(prun({"bench", "recipes", one, "--out", folder / "table.txt"}).code, 2);
}

// ---------------------------------------------------------------- io

TEST(BenchIo, MeasuresAFoldersDriveForPredictions) {
  const TempFolder folder;
  const std::string costs = folder / "costs.json";
  const Result result = prun({"bench", "io", folder.path(), "--stripe", "1024", "--depth", "16",
                              "--file-size", "64MiB", "--json", "--out", costs});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue said = parse_json(result.out, "io");
  ASSERT_EQ(said.at("results").as_array().size(), 1u);
  const JsonValue& rates = said.at("results").as_array().front();
  for (const char* way : {"read", "write", "mix_read", "mix_write"})
    EXPECT_GT(rates.at(way).as_double(), 1e6) << way;
  const std::string table = read_file(costs);
  EXPECT_NE(table.find("nvme: " + folder.path()), std::string::npos) << table;
}

// What the drives take stands in the prediction once a recipe's kernels are measured, and how much of it
// shows.
TEST(BenchIo, APredictionSaysWhatOfTheDrivesTimeNothingHides) {
  const TempFolder folder;
  const std::string recipe = folder / "drives.toml", costs = folder / "costs.json";
  std::ofstream(recipe)
      << tiny_recipe({"device.threads=1"}, offloaded_to_drives(folder.path())).resolved_toml();
  const Result measured = prun({"bench", "kernels", recipe, "--no-grid", "--out", costs});
  ASSERT_EQ(measured.code, 0) << measured.out;
  const Result planned = prun({"plan", recipe, "--json", "--costs", costs});
  ASSERT_EQ(planned.code, 0) << planned.out;
  const JsonValue plan = parse_json(planned.out, "plan");
  const double drives = plan.at("offload").at("drives_seconds").as_double(),
               exposed = plan.at("offload").at("exposed_drives_seconds").as_double();
  EXPECT_GT(drives, 1e-5);
  EXPECT_GE(exposed, 0);
  EXPECT_LE(exposed, drives * (1 + 1e-9));
  EXPECT_GT(plan.at("prediction").at("step_seconds").as_double(), exposed);
}

TEST(BenchIo, PrintsTheRatesOfEachFolderForARecipe) {
  const TempFolder folder;
  const Result result = prun({"bench", "io", folder.path(), folder.path(), "--stripe", "1024", "--depth",
                              "16", "--file-size", "64MiB", "--out", folder / "costs.json"});
  ASSERT_EQ(result.code, 0) << result.out;
  const std::size_t lines = result.out.find("[tier.nvme]\npaths = [");
  ASSERT_NE(lines, std::string::npos) << result.out;
  std::string table = result.out.substr(lines);
  table.resize(table.find("]\n", table.find("write_rate = [")) + 2);
  const Recipe recipe = tiny_recipe({}, offloaded(false, false, false, "nvme") + table);
  EXPECT_EQ(recipe.section("tier.nvme").numbers("read_rate").size(), 2u);
  EXPECT_EQ(recipe.section("tier.nvme").numbers("write_rate").size(), 2u);
}

TEST(BenchIo, TiersAreThoseThatSayIt) {
  const TempFolder folder;
  const Result result = prun({"bench", "io", folder.path(), "--tier", "cpu"});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_NE(result.out.find("there is no tier 'cpu'; there are nvme"), std::string::npos) << result.out;
}

TEST(BenchIo, AFolderThatIsNotThereIsNamed) {
  const Result result = prun({"bench", "io", "/no/such"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("/no/such of tier nvme: No such file or directory; create it"), std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace prun::test
