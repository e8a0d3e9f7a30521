// All microbatches of a layer before the next: the bits are those of one microbatch after the other, and what
// is fetched or summed once a layer moves once a step.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::breadth_first_test {
namespace {

constexpr int steps = 20;

const std::string data_and_zero3 =
    "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n"
    "reduce = 'step'\n";

std::vector<Layout> layouts_and_one_more() {
  std::vector<Layout> all = layouts();
  all.push_back({"zero3_step", data_and_zero3, {}});
  return all;
}

bool has(const Layout& layout, const char* text) { return layout.text.find(text) != std::string::npos; }

// Then a head's are summed when its backward has run, of several microbatches at once.
bool sums_each_microbatch(const Layout& layout) {
  return has(layout, "stage = 2") || (has(layout, "stage = 3") && !has(layout, "reduce = 'step'"));
}

// What is summed at once is rounded once.
bool rounds_sums(const Layout& layout) {
  return std::find(layout.sets.begin(), layout.sets.end(), "precision.reduce=int8") != layout.sets.end();
}

using Case = std::tuple<Layout, Target>;
class BreadthFirst : public testing::TestWithParam<Case> {};

// Of a tied table alone the contributions come in another order.
TEST_P(BreadthFirst, TwentyStepsHaveTheBitsOfTheUsualOrder) {
  const auto& [layout, target] = GetParam();
  const auto run = [&](const char* order) {
    return run_ranks(
        tiny_recipe(with(with(layout.sets, target.sets), {"model.tied=false", order}), layout.text), steps);
  };
  if (has(layout, "'pipeline'")) {
    EXPECT_THROW(run("batch.order=breadth_first"), Error);
    return;
  }
  const auto breadth_first = run("batch.order=breadth_first"), usual = run("batch.order=depth_first");
  if (!sums_each_microbatch(layout)) {
    EXPECT_EQ(breadth_first, usual);
  }
  for (std::size_t step = 0; step < steps; ++step)
    EXPECT_NEAR(breadth_first.front()[step], usual.front()[step], rounds_sums(layout) ? 2e-2 : 1e-4) << step;
}

INSTANTIATE_TEST_SUITE_P(Layouts, BreadthFirst,
                         testing::Combine(testing::ValuesIn(layouts_and_one_more()),
                                          testing::ValuesIn(targets())),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

std::int64_t exchanged_by(const Assembly& assembly, FunctionKind kind) {
  std::int64_t bytes = 0;
  for (const Call& call : assembly.plan().calls) {
    if (assembly.plan().functions[static_cast<std::size_t>(call.function)].kind != kind) continue;
    for (const PlannedStep& step : assembly.plan().steps(call))
      if (step.exchange) bytes += step.exchange->out.bytes;
  }
  return bytes;
}

TEST(BreadthFirst, ParametersComeTogetherOnceForwardAndOnceBack) {
  const auto gathered = [](const char* order, const char* global) {
    return exchanged_by(
        Assembly(tiny_recipe({"model.layers=12", "batch.micro=1", "run.bucket_bytes=0B", order, global},
                             data_and_zero3),
                 plugins()),
        FunctionKind::gather);
  };
  const std::int64_t one = gathered("batch.order=breadth_first", "batch.global=2"),
                     eight = gathered("batch.order=breadth_first", "batch.global=16");
  EXPECT_EQ(eight, one);
  EXPECT_GT(gathered("batch.order=depth_first", "batch.global=16"), 6 * one);
}

TEST(BreadthFirst, APipelineIsRefused) {
  try {
    const Assembly assembly(
        tiny_recipe({"batch.order=breadth_first"},
                    "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '1f1b'\n"),
        plugins());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("leave one of the two out"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace prun::test::breadth_first_test
