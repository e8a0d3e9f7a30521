// What `auto` stands for by predicted time, as a user sees it: measured, planned, trained.
#include <gtest/gtest.h>

#include <fstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* open_update = "strategy.0.update=auto";

std::string recipe_file() {
  const fs::path path = temporary_folder() / "open.toml";
  std::ofstream(path)
      << tiny_recipe({"run.steps=2", "device.threads=1", open_update}, offloaded()).resolved_toml();
  return path.string();
}

// With a folder of its own for the cost table.
Result prun_in(const fs::path& cache, std::vector<std::string> words) {
  words.insert(words.begin(), {"/usr/bin/env", "XDG_CACHE_HOME=" + cache.string(), PRUN_TEST_BINARY});
  return run_program(words);
}

std::string said_by(const Result& plan) { return parse_json(plan.out, "plan").at("auto").as_string(); }

// Each way is measured, so that all have a time; then a run takes the same as the plan says.
TEST(Quickest, IsChosenOfWhatWasMeasured) {
  const std::string file = recipe_file();
  const fs::path cache = temporary_folder() / "cache";
  const std::string unknown = said_by(prun_in(cache, {"plan", file, "--json"}));
  EXPECT_NE(unknown.find("strategy.0.update=host (no cost table yet; prun bench kernels RECIPE"),
            std::string::npos)
      << unknown;
  const Result bench = prun_in(cache, {"bench", "kernels", file, "--no-grid"});
  ASSERT_EQ(bench.code, 0) << bench.out;
  EXPECT_NE(bench.out.find("measuring: strategy.0.update=host\n"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("measuring: strategy.0.update=device\n"), std::string::npos) << bench.out;
  const std::string said = said_by(prun_in(cache, {"plan", file, "--json"}));
  EXPECT_EQ(said.find("cost table"), std::string::npos) << said;
  std::size_t times = 0;
  for (std::size_t at = said.find(" a step predicted"); at != std::string::npos;
       at = said.find(" a step predicted", at + 1))
    ++times;
  EXPECT_EQ(times, 2U) << said;
  const Result plan = prun_in(cache, {"plan", file});
  EXPECT_EQ(plan.out.find("auto        " + said + "\n"), 0U) << plan.out;
  const Result run = prun_in(cache, {file});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.out.find("prun: auto stands for " + said + "\n"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace prun::test
