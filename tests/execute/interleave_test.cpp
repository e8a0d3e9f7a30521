// Microbatches that go through the layers side by side: bits of one after the other, parameters gathered once
// for all of them, the same order on all ranks, and exchanges that travel while others compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "estimate/simulate.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::interleave_test {
namespace {

constexpr int steps = 20;

bool has(const Layout& layout, const char* text) { return layout.text.find(text) != std::string::npos; }

bool has_set(const Layout& layout, const char* set) {
  return std::find(layout.sets.begin(), layout.sets.end(), set) != layout.sets.end();
}

// Then the sum over the ranks is of all that go side by side, which is added up in another order, and rounded
// once where it travels in codes.
bool sums_each_microbatch(const Layout& layout) {
  return has(layout, "stage = 2") || has(layout, "stage = 3");
}

std::vector<Layout> layouts_of_one_stage() {
  std::vector<Layout> all = layouts();
  std::erase_if(all, [](const Layout& layout) { return has(layout, "'pipeline'"); });
  all.push_back({"tensor_recomputed",
                 "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n"
                 "[[strategy]]\nplugin = 'recompute'\n",
                 {}});
  all.push_back({"context", "[mesh]\ncp = 2\n[[strategy]]\nplugin = 'context'\n", {}});
  all.push_back(
      {"experts",
       "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'experts'\n",
       {"model.plugin=llama", "model.kv_heads=2", "model.ffn=32", "model.experts=4", "model.expert_ffn=16"}});
  return all;
}

using Case = std::tuple<Layout, Target, int>;
class Interleaved : public testing::TestWithParam<Case> {};

// Of a tied table alone the contributions come in another order.
TEST_P(Interleaved, TwentyStepsHaveTheBitsOfOneAfterTheOther) {
  const auto& [layout, target, interleave] = GetParam();
  const char* const poison = std::string_view(target.name) == "cpu" ? "run.poison=true" : "run.poison=false";
  const auto run = [&](int count) {
    return run_ranks(tiny_recipe(with(with(layout.sets, target.sets),
                                      {"model.tied=false", "batch.global=8", "batch.micro=1", poison,
                                       "batch.interleave=" + std::to_string(count)}),
                                 layout.text),
                     steps);
  };
  const auto interleaved = run(interleave), usual = run(1);
  if (!sums_each_microbatch(layout)) {
    EXPECT_EQ(interleaved, usual);
  }
  const bool rounds = has_set(layout, "precision.compute=bf16") || has_set(layout, "precision.reduce=int8");
  const double near = rounds ? 2e-2 : 1e-4;
  for (std::size_t step = 0; step < steps; ++step)
    EXPECT_NEAR(interleaved.front()[step], usual.front()[step], near) << step;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Interleaved,
                         testing::Combine(testing::ValuesIn(layouts_of_one_stage()),
                                          testing::ValuesIn(targets()), testing::Values(2, 4)),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name + "_" +
                                  std::to_string(std::get<2>(tested.param));
                         });

const std::string tensor = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\n";
const std::string all_of_it =
    "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\nsequence = "
    "true\n"
    "[[strategy]]\nplugin = 'zero'\nstage = ";

std::int64_t exchanged_by(const Assembly& assembly, FunctionKind kind) {
  const Plan& plan = assembly.plan();
  std::int64_t bytes = 0;
  for (const Call& call : plan.calls)
    if (plan.functions[call.function].kind == kind)
      for (const PlannedStep& step : plan.steps(call))
        if (step.exchange) bytes += step.exchange->out.bytes;
  return bytes;
}

TEST(Interleaved, ParametersAreGatheredAndGradientsSummedOnceForAll) {
  const auto exchanged = [&](const char* interleave, FunctionKind kind) {
    return exchanged_by(
        Assembly(tiny_recipe({"model.layers=6", "batch.global=16", "batch.micro=1", "run.bucket_bytes=0B",
                              std::string("batch.interleave=") + interleave},
                             all_of_it + "3\n"),
                 plugins()),
        kind);
  };
  EXPECT_EQ(exchanged("1", FunctionKind::reduce), 4 * exchanged("4", FunctionKind::reduce));
  const std::int64_t usual = exchanged("1", FunctionKind::gather),
                     four = exchanged("4", FunctionKind::gather);
  EXPECT_LE(3.5 * four, usual);
  EXPECT_GE(4.5 * four, usual);
}

// Ranks exchange in the same order, whatever part of the state each has and however many threads.
TEST(Interleaved, AllRanksHaveTheSamePlan) {
  for (const char* stage : {"1\n", "2\n", "3\n"}) {
    std::set<std::string> prints;
    for (const char* threads : {"device.threads=1", "device.threads=7"})
      for (const int rank : {0, 1, 2, 3})
        prints.insert(Assembly(tiny_recipe({"batch.global=8", "batch.micro=1", "batch.interleave=4", threads},
                                           all_of_it + stage),
                               plugins(), rank)
                          .fingerprint());
    EXPECT_EQ(prints.size(), 1u) << stage;
  }
}

// A product takes a second, an exchange of a microbatch half of one.
class ProductCostModel final : public CostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    return std::string_view(program.op(step.op).kind()).starts_with("linear") ? 1 : 0;
  }
  double exchange(const PlannedExchange& exchange, std::int64_t, std::string_view) override {
    return exchange.count > 1 ? 0.5 : 0;
  }
};

double exposed(const std::string& text, const char* interleave) {
  const Assembly assembly(tiny_recipe({"model.layers=8", "batch.global=4", "batch.micro=1",
                                       std::string("batch.interleave=") + interleave},
                                      text),
                          plugins());
  ProductCostModel cost_model;
  return simulate(
             all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
             cost_model)
      .exposed_communication();
}

TEST(Interleaved, ExchangesTravelWhileOthersCompute) {
  for (const char* sequence : {"", "sequence = true\n"}) {
    const double usual = exposed(tensor + sequence, "1"), two = exposed(tensor + sequence, "2");
    EXPECT_GT(usual, 8 * 4 * 4 * 0.5 * 0.9) << sequence;  // layers, microbatches, exchanges of each, at least
    EXPECT_LT(two, usual / 3) << sequence;
  }
}

class InterleaveRefused : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(InterleaveRefused, SaysWhatToDo) {
  const auto& [set, text, expected] = GetParam();
  try {
    const Assembly assembly(tiny_recipe({"batch.global=6", "batch.micro=1", "batch.interleave=2", set}, text),
                            plugins());
    FAIL() << set << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, InterleaveRefused,
    testing::Values(std::tuple("batch.interleave=4", "", "choose a number that divides 6"),
                    std::tuple("batch.micro=6", "", "a step has 1 microbatch of batch.micro = 6"),
                    std::tuple("batch.order=breadth_first", "", "leave one of the two out"),
                    std::tuple("batch.micro=1",
                               "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n",
                               "with a pipeline: its schedule decides")));

}  // namespace
}  // namespace prun::test::interleave_test
