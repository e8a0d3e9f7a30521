// Where a run's time went: every second of its log once.
#include "runs/log.hpp"

#include <gtest/gtest.h>

#include <map>

#include "log_text.hpp"
#include "runs/diff.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

std::map<std::string, double> shares_of(const std::string& text) {
  const TempFolder folder;
  const TimeAccount account = account_of(read_log(folder.write("log.jsonl", text)));
  std::map<std::string, double> shares{{"wall", account.wall}};
  for (const TimeShare& share : account.shares) shares[share.name] = share.seconds;
  return shares;
}

TEST(TimeAccount, EverySecondCountsOnce) {
  const auto shares = shares_of(
      start_line(100, 10) + step_line(104, 1, 5, 1) +
      step_line(108, 2, 4, 2, ",\"exposed_seconds\":0.5,\"save_seconds\":1.5") + step_line(110, 3, 4, 2) +
      "{\"type\":\"evaluation\",\"time\":111,\"step\":3,\"eval_loss\":3,\"targets\":5,\"seconds\":0.75}\n" +
      start_line(131, 10, 3) + step_line(134, 3, 3, 2, ",\"compare_seconds\":0.25"));
  EXPECT_NEAR(shares.at("wall"), 34, 1e-9);
  EXPECT_NEAR(shares.at("exposed communication"), 5 * 0.25, 1e-9);  // a quarter of the measured step, for all
  EXPECT_NEAR(shares.at("computing"), 5 * 0.75, 1e-9);
  EXPECT_NEAR(shares.at("saving"), 1.5, 1e-9);
  EXPECT_NEAR(shares.at("evaluating"), 0.75, 1e-9);
  EXPECT_NEAR(shares.at("comparing replicas"), 0.25, 1e-9);
  EXPECT_NEAR(shares.at("lost"), 2, 1e-9);
  EXPECT_NEAR(shares.at("starting"), 3 + 1, 1e-9);
  EXPECT_NEAR(shares.at("down"), 20, 1e-9);
  double sum = 0;
  for (const auto& [name, seconds] : shares)
    if (name != "wall") sum += seconds;
  EXPECT_NEAR(sum, shares.at("wall"), 1e-9);
}

TEST(TimeAccount, AMaskedStepIsLost) {
  std::string masked = step_line(102, 2, 4, 0.5);
  masked.replace(masked.find("\"kept\":true"), 11, "\"kept\":false");
  EXPECT_NEAR(shares_of(start_line(100, 10) + step_line(101, 1, 5, 0.5) + masked).at("lost"), 0.5, 1e-9);
}

TEST(TimeAccount, QuantilesOfSteps) {
  const TempFolder folder;
  std::string text = start_line(0, 10);
  for (long step = 1; step <= 5; ++step) text += step_line(step, step, 1, 0.1 * static_cast<double>(step));
  const RunLog log = read_log(folder.write("log.jsonl", text));
  EXPECT_NEAR(step_seconds_at(log, 0.5), 0.3, 1e-9);
  EXPECT_NEAR(step_seconds_at(log, 0), 0.1, 1e-9);
  EXPECT_NEAR(step_seconds_at(log, 1), 0.5, 1e-9);
}

TEST(RecipeLines, AreTakenApartWhateverTheTextsHold) {
  const std::vector<RecipeLine> lines = recipe_lines(
      "[run]\nname = \"a # \\\" = b\"   # --set run.name=a # b\nsteps = 5  # default\n\n[[strategy]]\n"
      "plugin = 'x#y'  # r.toml:3\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].section, "[run]");
  EXPECT_EQ(lines[0].value, "\"a # \\\" = b\"");
  EXPECT_EQ(lines[0].origin, "--set run.name=a # b");
  EXPECT_TRUE(lines[1].by_default());
  EXPECT_EQ(lines[2].section, "[[strategy]]");
  EXPECT_EQ(lines[2].value, "'x#y'");
}

}  // namespace
}  // namespace prun::test
