// prun report as a user types it.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>

#include "base/json.hpp"
#include "binary.hpp"
#include "report/page.hpp"
#include "runs/log.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

std::string recipe_in(const TempFolder& folder) {
  const std::vector<std::string> sets = {"run.out=" + (folder / "out"), "run.steps=4", "run.save_every=2"};
  return folder.write("tiny.toml", tiny_recipe(sets).resolved_toml());
}

TEST(Report, OfARunAndOfItsRecipe) {
  const TempFolder folder;
  const std::string recipe = recipe_in(folder);
  ASSERT_EQ(prun({recipe}).code, 0);
  const Result of_run = prun({"report", folder / "out"});
  ASSERT_EQ(of_run.code, 0) << of_run.out;
  EXPECT_NE(of_run.out.find("out/report.html"), std::string::npos) << of_run.out;
  const std::string page = read_file(folder / "out/report.html");
  const RunLog log = read_log(folder / "out/log.jsonl");
  ASSERT_EQ(log.steps.size(), 4u);
  EXPECT_GT(log.steps[2].save_seconds, 0) << "the save after step 2";
  EXPECT_EQ(log.steps[1].save_seconds, 0);
  ASSERT_TRUE(log.finish);
  EXPECT_GT(log.finish->save_seconds, 0);
  EXPECT_EQ(log.steps_to_do, 4);
  for (const std::string& said :
       {number_text(log.steps.back().loss), number_text(log.steps.front().loss), std::string("4 of 4"),
        std::string("saving"), std::string("has most in use in the call"), std::string("model FLOPs")})
    EXPECT_NE(page.find(said), std::string::npos) << said;
  const Result of_recipe = prun({"report", recipe, "--out", folder / "plan.html"});
  EXPECT_EQ(of_recipe.code, 0) << of_recipe.out;
  EXPECT_NE(read_file(folder / "plan.html").find("has most in use in the call"), std::string::npos);
}

// What a browser shows of a page, a space where a tag was.
std::string shown_text(const std::string& page) {
  const std::regex hidden("<(script|style)[^]*?</\\1>"), tag("<[^>]*>"), space("\\s+");
  const std::string without = std::regex_replace(page, hidden, " ");
  return std::regex_replace(std::regex_replace(without, tag, " "), space, " ");
}

// The sizes behind each place where `what` stands.
std::set<std::string> sizes_behind(const std::string& text, const std::string& what) {
  std::set<std::string> sizes;
  const std::regex size(what + " ([0-9.]+ [KMG]?i?B)");
  for (std::sregex_iterator at(text.begin(), text.end(), size), end; at != end; ++at) sizes.insert((*at)[1]);
  return sizes;
}

// Of the same ranks, wherever it stands: in what the run says at its end, in the prediction, the drawing, the
// table of purposes and the plan itself.
TEST(Report, HasOnePlannedSizeOfARank) {
  const TempFolder folder;
  const std::vector<std::string> sets = {"run.out=" + (folder / "out"),
                                         "run.steps=2",
                                         "batch.micro=2",
                                         "mesh.dp=2",
                                         "strategy.0.plugin=data",
                                         "strategy.1.plugin=zero",
                                         "strategy.1.axis=dp",
                                         "strategy.1.stage=1",
                                         "eval.every=1",
                                         "data.validation=0.2",
                                         "comm.default=ucx"};
  const std::string recipe = folder.write("two.toml", tiny_recipe(sets).resolved_toml());
  const Result run = prun({recipe});
  ASSERT_EQ(run.code, 0) << run.out;
  ASSERT_EQ(prun({"report", folder / "out"}).code, 0);
  const std::string text = shown_text(read_file(folder / "out/report.html"));
  const std::set<std::string> plan = sizes_behind(text, "the plan, in memory");
  ASSERT_EQ(plan.size(), 1u) << text;
  EXPECT_EQ(sizes_behind(text, "The plan reserves"), plan);
  EXPECT_EQ(sizes_behind(text, "\\) memory"), plan) << text;  // below the FLOPs of the plan
  const std::set<std::string> process = sizes_behind(text, "the process besides");
  ASSERT_EQ(process.size(), 1u) << text;
  for (const char* rank : {"0", "1"})
    EXPECT_NE(text.find(detail::concat(" ", rank, " ", *plan.begin(), " ", *process.begin(), " ")),
              std::string::npos)
        << text;
  const std::set<std::string> both =
      sizes_behind(text, "host memory of the largest rank: its plan and its process");
  ASSERT_EQ(both.size(), 1u) << text;
  EXPECT_NE(text.find(detail::concat(*process.begin(), " ", *both.begin(), " ")), std::string::npos) << text;
}

// Keys of a run by an earlier prun have the names that they had then.
TEST(Report, PlansARunWhoseKeysHadOldNames) {
  const TempFolder folder;
  ASSERT_EQ(prun({recipe_in(folder)}).code, 0);
  std::string stored = read_file(folder / "out/recipe.toml");
  const auto rename = [&](const std::string& now, const std::string& then) {
    const std::size_t at = stored.find("\n" + now);
    ASSERT_NE(at, std::string::npos) << now;
    stored.replace(at + 1, now.size(), then);
  };
  rename("allow_changed", "changed");
  rename("check_replicas_every", "compare_every");
  rename("order = \"depth_first\"", "order = \"horizontal\"");
  folder.write("out/recipe.toml", stored);
  const Result report = prun({"report", folder / "out"});
  ASSERT_EQ(report.code, 0) << report.out;
  const std::string page = read_file(folder / "out/report.html");
  EXPECT_NE(page.find("has most in use in the call"), std::string::npos) << "the page has no plan";
  EXPECT_EQ(page.find("It cannot be made here"), std::string::npos);
}

TEST(Runs, AreListedWatchedAndCompared) {
  const TempFolder folder;
  const std::string recipe = recipe_in(folder);
  const std::string other = "run.out=" + (folder / "other");
  ASSERT_EQ(prun({recipe}).code, 0);
  ASSERT_EQ(prun({recipe, "--set", other}).code, 0);
  const Result list = prun({"runs", folder.path()});
  EXPECT_EQ(list.code, 0) << list.out;
  EXPECT_NE(list.out.find("other  done   4/4"), std::string::npos) << list.out;
  EXPECT_EQ(parse_json(prun({"runs", folder.path(), "--json"}).out, "runs").as_array().size(), 2u);
  const Result watched = prun({"watch", folder / "out"});
  EXPECT_EQ(watched.code, 0);
  EXPECT_NE(watched.out.find("done  step 4/4"), std::string::npos) << watched.out;
  const Result same = prun({"diff", folder / "out", folder / "other"});
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_NE(same.out.find("the same bits in all 4 steps"), std::string::npos) << same.out;
  ASSERT_EQ(prun({recipe, "--set", other, "--set", "run.fresh=true", "--set", "run.seed=2"}).code, 0);
  const Result differs = prun({"diff", folder / "out", folder / "other"});
  EXPECT_EQ(differs.code, 1) << differs.out;
  EXPECT_NE(differs.out.find("run.seed"), std::string::npos) << differs.out;
  EXPECT_NE(differs.out.find("losses: part in step 1 of 4"), std::string::npos) << differs.out;
}

TEST(Report, WhatIsNoRunIsSaid) {
  const TempFolder folder;
  const Result nothing = prun({"report", folder.path()});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_NE(nothing.out.find("give the folder of a run"), std::string::npos) << nothing.out;
  EXPECT_EQ(prun({"report"}).code, 2);
}

}  // namespace
}  // namespace prun::test
