// Runs in a table, one of them watched, two of them compared: all from what lies in their folders.
#include "runs/run_list.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.hpp"
#include "log_text.hpp"
#include "runs/diff.hpp"
#include "runs/watch.hpp"
#include "runs/words.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string steps_from(long first, long last, double time, double loss = 4) {
  std::string text;
  for (long step = first; step <= last; ++step)
    text += step_line(time + static_cast<double>(step), step, loss / static_cast<double>(step), 0.5,
                      ",\"steps\":900,\"tokens_per_second\":1024");
  return text;
}

TEST(RunList, EachRunStandsAsItsFolderSays) {
  const TempFolder folder;
  folder.write("done/log.jsonl", start_line(100, 2) + steps_from(1, 2, 100) + finish_line(103));
  folder.write("stopped/log.jsonl", start_line(200, 900) + steps_from(1, 500, 200) +
                                        event_line(701, "stopped", "go on with") + finish_line(702));
  folder.write("failed/log.jsonl", start_line(300, 9) + event_line(301, "failed", "diverged"));
  folder.write("died/log.jsonl", start_line(400, 9) + steps_from(1, 3, 400));
  folder.write("again/log.jsonl",
               start_line(90, 9) + event_line(91, "failed", "x") + start_line(92, 9) + finish_line(93));
  folder.write("empty/recipe.toml", "");
  folder.write("no run/readme", "");
  const std::vector<RunRow> rows = list_runs(folder.path());
  ASSERT_EQ(rows.size(), 6u);
  std::map<std::string, RunRow> by_name;
  for (const RunRow& row : rows) by_name[row.name] = row;
  for (const char* state : {"done", "stopped", "failed", "died"}) EXPECT_EQ(by_name[state].state, state);
  EXPECT_EQ(by_name["again"].state, "done");
  EXPECT_EQ(rows.front().name, "stopped") << "who spoke last comes first";
  EXPECT_EQ(by_name["stopped"].step, 500);
  EXPECT_EQ(by_name["stopped"].steps, 900);
  EXPECT_EQ(by_name["stopped"].loss, 4.0 / 500);
  EXPECT_EQ(by_name["stopped"].tokens_per_second, 1024);
  EXPECT_EQ(list_runs(folder / "died").size(), 1u);
  const std::string text = runs_text(rows, 762);
  EXPECT_TRUE(has(text, "stopped  stopped  500/900")) << text;
  EXPECT_TRUE(has(text, "1m00s ago")) << text;
  EXPECT_EQ(parse_json(runs_json(rows), "rows").as_array().size(), 6u);
  EXPECT_THROW(list_runs(folder / "nowhere"), Error);
}

TEST(RunList, OfEachLogTheEndAloneIsRead) {
  const TempFolder folder;
  std::string text = start_line(0, 900);
  for (int i = 0; i < 1'000; ++i) text += "no record\n";
  folder.write("a/log.jsonl", text + std::string(1 << 16, 'x') + "\n" + steps_from(1, 60, 0));
  const RunLog log = read_log_tail(folder / "a/log.jsonl", 8192);
  EXPECT_EQ(log.unreadable, 0);
  EXPECT_EQ(list_runs(folder.path()).at(0).step, 60);
}

TEST(RunList, HostileNamesCannotMoveTheCursor) {
  const TempFolder folder;
  folder.write("a\033[2Jb/log.jsonl", start_line(0, 9));
  EXPECT_FALSE(has(runs_text(list_runs(folder.path()), 10), "\033"));
}

TEST(Watch, ARunThatWorks) {
  const TempFolder folder;
  folder.write("log.jsonl",
               start_line(100, 900) + steps_from(1, 90, 100) + event_line(191, "saved", "saved\\u001b[2J x"));
  const Recipe recipe = tiny_recipe({"run.out=" + folder.path(), "run.fresh=true"});
  const RunLog log = read_log(folder / "log.jsonl");
  const RunHolder self{"demo", "here", ::getpid(), true, true};
  const RunStatus status{"running", self};
  const std::vector<RankSeen> ranks = ranks_seen(self);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].pid, ::getpid());
  EXPECT_EQ(ranks[0].state, 'R');
  EXPECT_GT(ranks[0].resident_bytes, 1 << 20);
  const std::string text = watch_text(log, status, ranks, {80, true, 200});
  for (const std::string& said : {std::string("demo  running"), std::string("step 90/900"),
                                  std::string("eta 6m45s"), std::string("0.0444"), std::string("1.02k"),
                                  std::string("9s ago  saved: saved"), std::to_string(::getpid())})
    EXPECT_TRUE(has(text, said)) << said << "\n" << text;
  EXPECT_FALSE(has(text, "\033"));
  EXPECT_TRUE(goes_on(status));
  EXPECT_FALSE(goes_on({"done", {}}));
}

TEST(Watch, AClaimedFolderIsOfARunThatWorks) {
  const TempFolder folder;
  const Recipe recipe = tiny_recipe({"run.out=" + (folder / "run")});
  {
    const RunClaim claim(recipe);
    const std::optional<RunHolder> holder = holder_of(folder / "run");
    ASSERT_TRUE(holder);
    EXPECT_TRUE(holder->alive);
    EXPECT_EQ(holder->pid, ::getpid());
    EXPECT_EQ(status_of(folder / "run", RunLog()).state, "running");
  }
  EXPECT_EQ(status_of(folder / "run", RunLog()).state, "died");
  folder.write("run/run.lock", "{\"run\":\"x\",\"host\":\"elsewhere\",\"pid\":1,\"started\":5}\n");
  EXPECT_EQ(status_of(folder / "run", RunLog()).state, "at elsewhere");
  folder.write("run/run.lock", "{\"run\":\"x\",\"host\":");
  EXPECT_EQ(status_of(folder / "run", RunLog()).state, "died");
}

TEST(Sparkline, RisesAndFallsWithItsValues) {
  EXPECT_EQ(sparkline({0, 7}, 10, false), "_#");
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, false), "_.-=o+*#");
  EXPECT_EQ(sparkline({1, 1, 5, 5}, 2, true), "▁█");
  EXPECT_EQ(sparkline({1, std::numeric_limits<double>::quiet_NaN()}, 2, false), "_?");
  EXPECT_EQ(sparkline({}, 5, true), "");
}

class Diff : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& recipe, const std::string& log) {
    folder.write(name + "/recipe.toml", recipe);
    return folder.write(name + "/log.jsonl", start_line(0, 9) + log);
  }
  RunDifference compared() { return compare_runs(folder / "a", folder / "b"); }

  const TempFolder folder;
};

TEST_F(Diff, OldNamesOfKeysAreThoseOfToday) {
  run("a", "[batch]\norder = \"vertical\"  # x\n[precision]\nproducts = \"fp8\"  # x\n", step_line(1, 1, 5));
  run("b", "[batch]\norder = \"breadth_first\"  # x\n[precision]\nmatmul = \"fp8\"  # x\n",
      step_line(1, 1, 5));
  EXPECT_FALSE(compared().differ);
  run("b", "[batch]\norder = \"breadth_first\"  # x\n[[strategy]]\nplugin = \"fp8\"  # x\n",
      step_line(1, 1, 5));
  EXPECT_FALSE(compared().differ);
  run("b", "[batch]\norder = \"breadth_first\"  # x\n", step_line(1, 1, 5));
  EXPECT_TRUE(compared().differ);
}

TEST_F(Diff, TheTextOfAnOldRecipeCanBeRead) {
  run("a",
      "[batch]\norder = \"vertical\"  # x\n[precision]\nmatmul = \"fp8\"  # x\nactivations = "
      "\"fp8\"\n[optimizer]\n"
      "average = 0.0  # default\n[[strategy]]\nplugin = \"data\"\n",
      step_line(1, 1, 5));
  EXPECT_EQ(recipe_text_of(folder / "a"),
            "[batch]\norder = \"breadth_first\"\n[precision]\n\n\n[optimizer]\n\n[[strategy]]\nplugin = "
            "\"data\"\n\n"
            "[[strategy]]\nplugin = \"fp8\"\nactivations = true");
}

TEST_F(Diff, TheStepAtWhichLossesPart) {
  run("a", "[optimizer]\nlr = 0.1  # x\n[run]\nname = \"a\"  # x\n",
      step_line(1, 1, 5) + step_line(2, 2, 4) + step_line(3, 3, 3));
  run("b", "[optimizer]\nlr = 0.2  # y\n[run]\nname = \"b\"  # y\n",
      step_line(1, 1, 5, 1) + step_line(2, 2, 4.25, 1) + step_line(3, 3, 3.125, 1));
  const RunDifference difference = compared();
  EXPECT_TRUE(difference.differ);
  for (const char* said :
       {"optimizer.lr  0.1  0.2", "part in step 2 of 3", "most at step 2: 4 and 4.25, 0.25 apart",
        "last at step 3: 3 and 3.125, 0.125 apart", "quantile 0.50", "+100.0 %"})
    EXPECT_TRUE(has(to_text(difference), said)) << said << "\n" << to_text(difference);
  const JsonValue json = parse_json(to_json(difference), "diff");
  EXPECT_TRUE(json.at("differ").as_bool());
  EXPECT_EQ(json.at("recipe").as_array()[0].at("name").as_string(), "optimizer.lr");
  EXPECT_EQ(json.at("recipe").as_array()[0].at("second").as_string(), "0.2");
  EXPECT_EQ(json.at("common_steps").as_int64(), 3);
  EXPECT_EQ(json.at("losses_part").at("first").at("step").as_int64(), 2);
  EXPECT_EQ(json.at("losses_part").at("most").at("second").as_double(), 4.25);
  EXPECT_EQ(json.at("losses_part").at("last").at("second").as_double(), 3.125);
  EXPECT_EQ(json.at("step_seconds").as_array().size(), 4u);
}

TEST_F(Diff, WhereARunLiesIsNoDifference) {
  run("a", "[run]\nname = \"a\"  # x\nout = \"a\"  # x\n", step_line(1, 1, 5));
  run("b", "[run]\nname = \"b\"  # x\nout = \"b\"  # x\n", step_line(1, 1, 5, 2) + step_line(2, 2, 4));
  const RunDifference difference = compared();
  EXPECT_FALSE(difference.differ) << to_text(difference);
  EXPECT_TRUE(has(to_text(difference), "the same bits in all 1 steps")) << to_text(difference);
  EXPECT_EQ(parse_json(to_json(difference), "diff").as_object().find("losses_part"), nullptr);
}

TEST_F(Diff, AnotherBuildOfAPlugin) {
  const auto plugins = [](const char* build) {
    return std::string(R"([{"kind":"comm","name":"ucx","version":"0.1.0","sha256":"s","build_id":")") +
           build + "\"}]";
  };
  for (const char* name : {"a", "b"}) {
    run(name, "", step_line(1, 1, 5));
    folder.write(std::string(name) + "/plugins.json", plugins(name));
  }
  EXPECT_TRUE(has(to_text(compared()), "comm.ucx  0.1.0, build a  0.1.0, build b")) << to_text(compared());
  EXPECT_TRUE(compared().differ);
}

TEST_F(Diff, ListsAreComparedItemByItem) {
  const std::string two =
      "[[strategy]]\nplugin = \"data\"  # x\n[[strategy]]\nplugin = \"zero\"  # x\nstage = 1  # x\n";
  std::string other = two;
  other.replace(other.find("stage = 1"), 9, "stage = 2");
  run("a", two, step_line(1, 1, 5));
  run("b", other, step_line(1, 1, 5));
  EXPECT_TRUE(has(to_text(compared()), "strategy.1.stage  1  2")) << to_text(compared());
}

}  // namespace
}  // namespace prun::test
