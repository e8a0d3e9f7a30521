// The picture of a search's layouts.
#include "report/layouts.hpp"

#include <gtest/gtest.h>

namespace prun::test {
namespace {

TunedCandidate layout(const char* text, std::int64_t bytes, double seconds) {
  TunedCandidate one;
  one.text = text;
  one.planned.device_bytes = bytes;
  one.planned.step_seconds = seconds;
  return one;
}

std::vector<TunedCandidate> layouts() {
  return {layout("fast & large", 400, 1.0), layout("beaten", 400, 1.5), layout("small", 100, 3.0),
          layout("between", 200, 2.0), layout("slow", 300, 2.0)};
}

TEST(Layouts, TheFrontierHasWhatNothingSmallerBeats) {
  const std::vector<TunedCandidate> all = layouts();
  std::vector<std::string> texts;
  for (const TunedCandidate* one : frontier_of(all)) texts.push_back(one->text);
  EXPECT_EQ(texts, (std::vector<std::string>{"small", "between", "fast & large"}));
}

TEST(Layouts, EachIsAPointWithWhatItIs) {
  TuneResult result;
  result.best = layouts();
  result.looked_at = 9;
  result.why = {"because <b>"};
  Html page;
  add_layouts(page, result);
  const std::string text = page.take();
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<circle"), 5 + 3 + 1);
  EXPECT_NE(text.find("fast &amp; large: 1 s, 400 B"), std::string::npos) << text;
  EXPECT_NE(text.find("because &lt;b&gt;"), std::string::npos);
  EXPECT_EQ(count("<path"), 1);
  for (const char* const tick : {">1 s<", ">1.5 s<", ">2 s<", ">3 s<", ">0 B<", ">128 B<", ">384 B<"})
    EXPECT_GE(count(tick), 1) << tick;
}

// One that takes ten times as long would press the others onto a line.
TEST(Layouts, WhatTakesFarLongerThanTheBestIsNotDrawn) {
  TuneResult result;
  result.best = layouts();
  result.best.push_back(layout("far", 50, 10.0));
  Html page;
  add_layouts(page, result);
  const std::string text = page.take();
  EXPECT_EQ(text.find("<title>far"), std::string::npos) << text;
  EXPECT_NE(text.find("without 1 that take more than 3 times as long"), std::string::npos) << text;
  EXPECT_NE(text.find("<td>far</td>"), std::string::npos) << "it is in the table all the same";
  // 2 s of 1 s to 3 s: log(2) / log(3) of the height, which is 268 from 280 upwards.
  EXPECT_NE(text.find("cy=\"110.91\""), std::string::npos) << text;
}

}  // namespace
}  // namespace prun::test
