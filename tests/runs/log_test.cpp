// The log of a run, read by somebody else: whole, its tail, while it grows, and when it is damaged.
#include "runs/log.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "log_text.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

TEST(LogLine, IsTakenApartInPlace) {
  LogLine line;
  ASSERT_TRUE(line.parse(R"({"a":1.5,"b":"x\"y,}","c":[{"d":1},"]"],"e":true,"f":"nan","g":-7})"));
  EXPECT_EQ(line.number("a"), 1.5);
  EXPECT_EQ(line.text("b"), "x\"y,}");
  EXPECT_EQ(line.raw("c"), R"([{"d":1},"]"])");
  EXPECT_TRUE(line.flag("e", false));
  EXPECT_TRUE(std::isnan(*line.number("f")));
  EXPECT_EQ(line.integer("g"), -7);
  EXPECT_FALSE(line.number("b").has_value());
  EXPECT_FALSE(line.number("missing").has_value());
  EXPECT_TRUE(line.parse("{}"));
}

// Other programs that rewrite a log put blanks where JSON allows them.
TEST(LogLine, BlanksChangeNothing) {
  LogLine line;
  ASSERT_TRUE(
      line.parse("\t{ \"a\" : 1.5 ,\"b\":\t\"x , }\", \"c\" : { \"d\" : [ 1, 2 ] } , \"e\": true }\r"));
  EXPECT_EQ(line.number("a"), 1.5);
  EXPECT_EQ(line.text("b"), "x , }");
  EXPECT_EQ(line.raw("c"), R"({ "d" : [ 1, 2 ] })");
  EXPECT_TRUE(line.flag("e", false));
  EXPECT_TRUE(line.parse("{ }"));
  EXPECT_TRUE(line.parse("{\"type\": \"start\"}") && line.is("type", "start"));
}

TEST(LogLine, WhatIsCutOffOrNoObjectIsRefused) {
  LogLine line;
  for (const char* wrong :
       {"", "{", "[]", "{\"a\":1", "{\"a\":}", "{\"a\"}", "{\"a:1}", "{\"a\":1,}", "{\"a\":[1}", "{\"a\": }",
        "{\"a\": 1, }", "{ ", "{\"a\":1}x", "{\"a\":\"\\\"}", "{a:1}"})
    EXPECT_FALSE(line.parse(wrong)) << wrong;
}

TEST(RunLog, OfAStepDoneAgainTheLaterLineCounts) {
  const TempFolder folder;
  const std::string file =
      folder.write("log.jsonl", start_line(100, 10) + step_line(101, 1, 5) + step_line(102, 2, 4) +
                                    step_line(103, 3, 3.5) + start_line(110, 10, 3) +
                                    step_line(111, 3, 3.25, 0.75) + event_line(112, "saved", "x"));
  const RunLog log = read_log(file);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(log.steps[2].loss, 3.25);
  EXPECT_EQ(log.steps[2].tokens_per_second, 512 / 0.75);
  EXPECT_EQ(log.redone_steps, 1);
  EXPECT_EQ(log.redone_seconds, 0.5);
  ASSERT_EQ(log.parts.size(), 2u);
  EXPECT_EQ(log.parts[0].end, 103);
  EXPECT_EQ(log.last_time(), 112);
  EXPECT_EQ(log.events.at(0).step, 3);
}

// Training goes on while it saves: that is said steps later.
TEST(RunLog, ASaveIsOfTheStepThatWasSaved) {
  const TempFolder folder;
  const std::string file = folder.write(
      "log.jsonl", start_line(100, 10) + step_line(101, 1, 5) + step_line(102, 2, 4) + step_line(103, 3, 4) +
                       event_line(104, "saved", "runs/demo/step-00000001") +
                       "{\"type\":\"event\",\"time\":105,\"kind\":\"saved\",\"message\":\"x\",\"step\":2}\n" +
                       event_line(106, "note", "runs/demo/step-00000001"));
  const RunLog log = read_log(file);
  ASSERT_EQ(log.events.size(), 3u);
  EXPECT_EQ(log.events[0].step, 1);
  EXPECT_EQ(log.events[1].step, 2);
  EXPECT_EQ(log.events[2].step, 3);
}

TEST(RunLog, DamagedLinesAreCountedAndAnUnfinishedOneIsNot) {
  const TempFolder folder;
  const std::string file =
      folder.write("log.jsonl", start_line(100, 10) + "garbage\n{\"type\":\"finish\",\"memory\":[7]}\n" +
                                    step_line(101, 1, 5) + "{\"type\":\"step\",\"step\":2,\"lo");
  const RunLog log = read_log(file);
  EXPECT_EQ(log.unreadable, 2);
  EXPECT_EQ(log.steps.size(), 1u);
  EXPECT_FALSE(log.finish.has_value());
}

TEST(RunLog, TheTailKnowsWhatTheStartSays) {
  const TempFolder folder;
  std::string text = start_line(100, 5000);
  for (long step = 1; step <= 4000; ++step) text += step_line(100 + step, step, 1.0 / step);
  const std::string file = folder.write("log.jsonl", text);
  const RunLog whole = read_log(file), tail = read_log_tail(file, 4096);
  EXPECT_LT(tail.steps.size(), 30u);
  EXPECT_EQ(tail.unreadable, 0);
  EXPECT_EQ(tail.steps.back().loss, whole.steps.back().loss);
  EXPECT_EQ(tail.steps.back().tokens_per_second, 1024);
  EXPECT_EQ(tail.steps_to_do, 5000);
  EXPECT_EQ(tail.start()->name, "demo");
}

TEST(RunLog, IsFollowedAsItGrows) {
  const TempFolder folder;
  std::string text = start_line(100, 10) + step_line(101, 1, 5);
  const std::string whole = step_line(102, 2, 4);
  LogFollower follower(folder.write("log.jsonl", text), 1 << 16);
  EXPECT_FALSE(follower.go_on());
  folder.write("log.jsonl", text + whole.substr(0, 20));
  EXPECT_FALSE(follower.go_on());
  folder.write("log.jsonl", text + whole + event_line(103, "note", "here"));
  EXPECT_TRUE(follower.go_on());
  EXPECT_EQ(follower.log().steps.back().loss, 4);
  EXPECT_EQ(follower.log().events.size(), 1u);
  EXPECT_EQ(follower.log().unreadable, 0);
  folder.write("log.jsonl", start_line(200, 3));
  EXPECT_TRUE(follower.go_on());
  EXPECT_TRUE(follower.log().steps.empty());
}

TEST(RunLog, WhereThereIsNoneIsSaid) {
  const TempFolder folder;
  EXPECT_THROW(log_of(folder.path()), Error);
  EXPECT_THROW(read_log(folder.path()), Error);
}

}  // namespace
}  // namespace prun::test
