// The page of a run: its numbers are those of the log, whatever its texts hold it stays a page, and a real
// browser finds nothing wrong with it.
#include "report/run_page.hpp"

#include <gtest/gtest.h>

#include "browser.hpp"
#include "report/page.hpp"
#include "report/plan_page.hpp"
#include "runs/log_text.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

constexpr const char* hostile =
    "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

AddPlan nothing_planned() {
  return [](Html&, const RunLog&) { throw_error(ErrorCode::unsupported, "there is no device of that kind"); };
}

std::string json_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}

class RunPage : public testing::Test {
 protected:
  std::string written(const std::string& name, const std::string& log) {
    folder.write(name + "/log.jsonl", log);
    return folder / name;
  }
  std::string page_of(const std::vector<std::filesystem::path>& runs) {
    return run_page(runs, nothing_planned());
  }

  const TempFolder folder;
};

std::string three_steps(const std::string& name = "demo") {
  return start_line(1000, 3, 1, name) + step_line(1001, 1, 5.4375, 0.5) + step_line(1002, 2, 7.0625, 0.25) +
         step_line(1003, 3, 2.34375, 0.125) + event_line(1004, "warning", "mind the gap") + finish_line(1005);
}

TEST_F(RunPage, SaysWhatTheLogSays) {
  const std::string page = page_of({written("run", three_steps())});
  for (const char* said : {"<h1>demo</h1>", "3 of 3", "2.34375",
                           "from 5.4375 to 2.34375, least 2.34375 at step 3", "greatest 7.0625 at step 2",
                           ">250 ms<", "mind the gap", "4.88 KiB", "there is no device of that kind"})
    EXPECT_TRUE(has(page, said)) << said;
}

// Counts add up over layers; of many a layer, the largest tells how even they are.
TEST_F(RunPage, WhatOpsCountHasCurvesOfItsOwn) {
  const auto step = [](int number, const std::string& tallies) {
    return "{\"type\":\"step\",\"time\":" + std::to_string(1000 + number) +
           ",\"step\":" + std::to_string(number) + ",\"loss\":3,\"seconds\":0.25," + tallies + "}\n";
  };
  const std::string page = page_of({written(
      "run",
      start_line(1000, 2) +
          step(1, R"("block.dropped":{"0":[2,3]},"block.choices":{"0":[4,1],"1":[4,7]},)"
                  R"("block.rows":{"0":[8,6],"1":[16,16]},)"
                  R"("wide.choices":{"sum":[8,8],"least":[0.5,0.25],"most":[1.5,2.5]})") +
          step(
              2,
              R"("block.rows":{"0":[7,9],"1":[16,16]},"block.dropped":{"0":[0.5,0.5]},"block.choices":{"0":[2,1],"1":[6,7]},)"
              R"("wide.choices":{"sum":[8,8],"least":[1,1],"most":[2,1]},"odd.one":{"a":1})"))});
  for (const char* said : {"block.dropped", "from 5 to 1,", "block.choices", "demo, 0", "from 5 to 3,",
                           "demo, 1", "from 11 to 13,", "block.rows", "from 8 to 9,", "from 16 to 16,",
                           "wide.choices", "from 2.5 to 2,", "2 of 2"})
    EXPECT_TRUE(has(page, said)) << said;
  EXPECT_FALSE(has(page, "odd.one"));
}

// It belongs to no layer.
TEST_F(RunPage, TheShareOfClippedStepsIsOfTheStepsSoFar) {
  const std::string page =
      page_of({written("run", start_line(1000, 1) + "{\"type\":\"step\",\"time\":1001,\"step\":1,\"loss\":3,"
                                                    "\"seconds\":0.25,\"clipped.share\":{\"0\":[0.5]}}\n")});
  EXPECT_TRUE(has(page, "clipped.share, of the steps so far")) << page;
}

// Shares and extremes do not add up: of all factors of a segment, the most extreme layer is shown.
TEST_F(RunPage, WhatDoesNotAddUpIsShownByItsExtremes) {
  const auto step = [](int number, const std::string& tallies) {
    return "{\"type\":\"step\",\"time\":" + std::to_string(1000 + number) +
           ",\"step\":" + std::to_string(number) + ",\"loss\":3,\"seconds\":0.25," + tallies + "}\n";
  };
  const std::string page =
      page_of({written("run", start_line(1000, 2) +
                                  step(1, R"("block.fp8.up.input.flushed.share":{"0":[0.125,0.25]},)"
                                          R"("block.fp8.down.weight.flushed.share":{"0":[0.5,0.25]},)"
                                          R"("block.fp8.up.input.exponent.least":{"0":[-7,-9]})") +
                                  step(2, R"("block.fp8.up.input.flushed.share":{"0":[0.625,0.25]},)"
                                          R"("block.fp8.down.weight.flushed.share":{"0":[0.5,0.25]},)"
                                          R"("block.fp8.up.input.exponent.least":{"0":[-7,-3]})"))});
  for (const char* said : {"block ... flushed.share", "from 0.5 to 0.625,", "block ... exponent.least",
                           "from -9 to -7,", "the largest of all layers", "the least of all layers"})
    EXPECT_TRUE(has(page, said)) << said;
  EXPECT_FALSE(has(page, "up.input"));
}

TEST_F(RunPage, WhatElseWasEvaluatedHasCurvesOfItsOwn) {
  const std::string page = page_of(
      {written("run", three_steps() +
                          "{\"type\":\"evaluation\",\"time\":1004,\"step\":3,\"eval_loss\":3,\"targets\":5,"
                          "\"seconds\":1,\"sets\":{\"average\":{\"loss\":2.5,\"targets\":5},"
                          "\"data.blend.0\":{\"loss\":4.125,\"targets\":2}}}\n")});
  for (const char* said : {"demo, average", "demo, data.blend.0", "4.125"})
    EXPECT_TRUE(has(page, said)) << said;
}

TEST_F(RunPage, NeedsNothingElse) {
  const std::string page = page_of({written("run", three_steps())});
  for (const char* outside : {"http://", "https://", "src=", "href=", "@import", "url("}) {
    std::string rest = page;
    for (std::size_t at; (at = rest.find("http://www.w3.org/2000/svg")) != std::string::npos;)
      rest.erase(at, 26);
    EXPECT_FALSE(has(rest, outside)) << outside;
  }
}

TEST_F(RunPage, HostileTextsStayTexts) {
  const std::string name = json_text(hostile);
  const std::string run = written("run", start_line(1000, 3, 1, name) + step_line(1001, 1, 5) +
                                             event_line(1002, "failed", name) + event_line(1003, name, "x"));
  folder.write("run/recipe.toml", std::string("[run]\nname = '") + hostile + "'  # " + hostile + "\n");
  folder.write("run/failures.log", hostile);
  folder.write("run/plugins.json", std::string("[{\"kind\":\"") + name +
                                       "\",\"name\":\"n\",\"version\":\"1\"," +
                                       "\"build_id\":\"b\",\"sha256\":\"s\"}]");
  const std::string other = written("other", start_line(1000, 3, 1, "2" + name) + step_line(1001, 1, 5));
  const std::string both = page_of({run, other});
  const std::string alone = page_of({run});
  for (const std::string& text : {both, alone}) {
    EXPECT_FALSE(has(text, "<img"));
    EXPECT_FALSE(has(text, "<script>document"));
    EXPECT_TRUE(has(text, "&lt;/script&gt;&lt;script&gt;document.title"));
  }
  PRUN_NEEDS_BROWSER();
  const std::string seen = rendered(folder.write("hostile.html", alone));
  EXPECT_TRUE(has(seen, "data-ready=\"yes\"")) << seen.substr(0, 500);
  for (const char* wrong : {"data-error", "data-violation", "<title>taken", "<img"})
    EXPECT_FALSE(has(seen, wrong)) << wrong;
}

// A time or a word that is broken within is none that is read at a glance.
TEST_F(RunPage, OfAnEventTheMessageAloneIsBrokenIntoLines) {
  const std::string text = page_of({written("run", three_steps())});
  EXPECT_TRUE(has(text, "<div class=\"wide events\"><table><caption>"));
  EXPECT_TRUE(has(text, ".events th, .events td { white-space: nowrap; }"));
  EXPECT_TRUE(has(text, ".events td:last-child { white-space: normal;"));
  EXPECT_TRUE(has(text, "th { overflow-wrap: break-word; }"));  // names of rows, where the page is narrow
}

TEST_F(RunPage, ValuesOfMillionsHaveRoomBesideTheirAxis) {
  const std::string text = page_of(
      {written("run", start_line(1000, 3, 1, "run") + step_line(1001, 1, 1e6) + step_line(1002, 2, 4e6))});
  EXPECT_TRUE(has(text, ">2M</text>"));
  EXPECT_FALSE(has(text, ">2000000</text>"));
}

TEST_F(RunPage, ACurveOfFewPointsHasDots) {
  const std::string two = start_line(1000, 3, 1, "run") + step_line(1001, 1, 5.4375) + step_line(1002, 2, 3);
  const std::string page = page_of({written("run", two)});
  const std::size_t chart = page.find("id=\"chart-loss\""), end = page.find("</svg>", chart);
  ASSERT_NE(chart, std::string::npos);
  const std::string loss = page.substr(chart, end - chart);
  const std::size_t first = loss.find("<circle class=\"f0\"");
  ASSERT_NE(first, std::string::npos) << loss;
  EXPECT_NE(loss.find("<circle class=\"f0\"", first + 1), std::string::npos) << loss;
}

TEST_F(RunPage, SettingsInWhichTwoRunsDifferAreListed) {
  const std::string one = written("one", three_steps()), other = written("other", three_steps());
  folder.write("one/recipe.toml", "[run]\nsteps = 3 # said\n[optimizer]\nlr = 0.25 # said\n");
  folder.write("other/recipe.toml", "[run]\nsteps = 3 # said\n[optimizer]\nlr = 0.125 # said\n");
  const std::string page = page_of({one, other});
  EXPECT_TRUE(has(page, "settings that differ")) << page;
  EXPECT_TRUE(has(page, "optimizer.lr"));
  EXPECT_TRUE(has(page, "0.25"));
  EXPECT_TRUE(has(page, "0.125"));
  EXPECT_FALSE(has(page, "run.steps"));
  EXPECT_FALSE(has(page_of({one}), "settings that differ"));
}

TEST_F(RunPage, ABrowserShowsTheNumbersOfTheLog) {
  PRUN_NEEDS_BROWSER();
  const std::string other = written(
      "other", start_line(1000, 3, 1, "other") + step_line(1001, 1, 4.125) + step_line(1002, 2, 3.0625));
  const std::string one = rendered(folder.write("one.html", page_of({written("run", three_steps())})));
  const std::string both = rendered(folder.write("both.html", page_of({folder / "run", other})));
  for (const std::string& seen : {one, both}) {
    EXPECT_TRUE(has(seen, "data-ready=\"yes\"")) << seen.substr(0, 500);
    EXPECT_FALSE(has(seen, "data-error"));
    EXPECT_FALSE(has(seen, "data-violation"));
    for (const char* said : {"5.4375", "7.0625", "2.34375"}) EXPECT_TRUE(has(seen, said)) << said;
    EXPECT_TRUE(has(seen, "class=\"curve c0\" d=\"M")) << "the script has drawn no curve";
    EXPECT_FALSE(has(seen, "<form id=\"controls\" hidden")) << "no controls";
  }
  for (const char* said : {"other", "4.125", "3.0625", "class=\"curve c1\" d=\"M"})
    EXPECT_TRUE(has(both, said)) << said;
}

TEST_F(RunPage, ACurveOfOnePointCanBeSeen) {
  const std::string page = page_of({written("run", start_line(1000, 1) + step_line(1001, 1, 5.4375))});
  EXPECT_TRUE(has(page, "m-3 0h6\">")) << page;
  EXPECT_FALSE(has(page_of({written("more", three_steps())}), "m-3 0h6\">"));
  PRUN_NEEDS_BROWSER();
  EXPECT_TRUE(has(rendered(folder.write("one.html", page)), "m-3 0h6\">")) << "the script draws it otherwise";
}

// The policy of a page lets no other script act, so this one acts on a page without it.
std::string acted_upon(std::string page, const std::string& script) {
  const std::string policy = "<meta http-equiv=\"Content-Security-Policy\"";
  const std::size_t at = page.find(policy);
  page.erase(at, page.find('>', at) + 1 - at);
  return page.insert(page.find("</body>"), "<script>" + script + "</script>");
}

TEST_F(RunPage, TheKeyboardMovesZoomsAndGoesBack) {
  PRUN_NEEDS_BROWSER();
  const std::string script = R"js(
    const chart = document.querySelector("#chart-loss svg"), said = document.documentElement.dataset;
    const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
    const ticks = () => Array.from(chart.querySelectorAll(".tick.x"), (tick) => tick.textContent).join(" ");
    said.whole = ticks();
    press("End"); said.atTheEnd = document.querySelector("#chart-loss output").textContent;
    press("Home"); said.atTheBegin = document.querySelector("#chart-loss output").textContent;
    press("+"); said.zoomed = ticks();
    press("0"); said.back = ticks();
    const axis = document.querySelector("#controls select");
    axis.value = "time"; axis.dispatchEvent(new Event("input")); said.time = ticks();
  )js";
  const std::string page = page_of({written("run", three_steps())});
  const std::string seen = rendered(folder.write("keys.html", acted_upon(page, script)));
  EXPECT_FALSE(has(seen, "data-error")) << seen.substr(0, 500);
  for (const char* said : {"data-at-the-end=\"step 3: 2.34375\"", "data-at-the-begin=\"step 1: 5.4375\"",
                           "data-whole=\"step 1 2 3\"", "data-zoomed=\"step 1 2\"",
                           "data-back=\"step 1 2 3\"", "data-time=\"1 s 1.5 s 2 s 2.5 s 3 s\""})
    EXPECT_TRUE(has(seen, said)) << said << "\n" << seen.substr(0, 700);
}

TEST_F(RunPage, AMillionStepsAreAFileOfTwoMebibytesAtMost) {
  std::vector<CurvePoint> points(1'000'000);
  for (std::size_t i = 0; i < points.size(); ++i)
    points[i] = {static_cast<double>(i), 0.1 * static_cast<double>(i),
                 1 / (1.0 + static_cast<double>(i * 7919 % 1000))};
  points[654'321].value = 55.5;
  std::vector<Chart> charts;
  for (const char* id : {"a", "b", "c", "d", "e", "f"})
    charts.push_back({id, id, "", {curve_of("run", points, 400)}});
  EXPECT_EQ(charts[0].curves[0].greatest_at, 654'321);
  EXPECT_TRUE(has(charts_json(charts), "[654321,"));
  Html page;
  for (const Chart& chart : charts) add_chart(page, chart);
  EXPECT_LT(page.take().size() + charts_json(charts).size(), std::size_t{3} << 19);
}

TEST_F(RunPage, WhatIsNoLogIsRefused) {
  EXPECT_THROW(page_of({written("run", "")}), Error);
  EXPECT_THROW(page_of({folder / "nowhere"}), Error);
  EXPECT_THROW(page_of({}), Error);
  EXPECT_THROW(page_of(std::vector<std::filesystem::path>(9, written("run", three_steps()))), Error);
}

}  // namespace
}  // namespace prun::test
