// What becomes of factors in fp8 is counted alike in every layout, and changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/coded_runs.hpp"
#include "support/tallies.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/step_staging.hpp"

namespace prun::test::fp8_counts_test {
namespace {

Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"model.hidden=256", "model.heads=2",          "model.ffn=256",
                                  "model.seq=128",    "batch.micro=1",          "batch.global=4",
                                  "optimizer.clip=1", "precision.compute=fp64", "precision.state=fp64",
                                  "device.pin=false", "device.threads=1",       "fp8.statistics_every=2"};
  all.insert(all.end(), sets.begin(), sets.end());
  const auto last = std::find_if(all.rbegin(), all.rend(), [](const std::string& set) {
    return set.starts_with("fp8.statistics_every=");
  });
  const std::string every = *last;  // a key stands once in a section
  std::erase_if(all, [](const std::string& set) { return set.starts_with("fp8.statistics_every="); });
  all.push_back(every);
  return recipe_in_fp8(text, {all});
}

std::string axis(const std::string& name, const std::string& plugin, const std::string& options = "") {
  return "[mesh]\n" + name + " = 2\n[[strategy]]\nplugin = '" + plugin + "'\n" + options;
}

std::vector<StepTally> counts_of(const std::string& text, const std::vector<std::string>& sets = {},
                                 int steps = 2) {
  return tallies_of(recipe_of(text, sets), steps, "");
}

// Magnitudes differ as what ranks add up in another order does; shares and exponents do not.
void expect_alike(const std::vector<StepTally>& there, const std::vector<StepTally>& alone,
                  const std::string& layout) {
  ASSERT_EQ(there.size(), alone.size()) << layout;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(there[i].name, alone[i].name) << layout;
    ASSERT_EQ(there[i].numbers.size(), alone[i].numbers.size()) << layout;
    for (std::size_t layer = 0; layer < alone[i].numbers.size(); ++layer)
      EXPECT_NEAR(there[i].numbers[layer], alone[i].numbers[layer], 1e-9 * std::abs(alone[i].numbers[layer]))
          << layout << alone[i].name;
  }
}

// Says how many numbers of a kind there are that are not `none`.
std::size_t counted(const std::vector<StepTally>& tallies, const std::string& end, double none) {
  std::size_t count = 0;
  for (const StepTally& tally : tallies)
    for (const double number : tally.numbers) count += tally.name.ends_with(end) && number != none;
  return count;
}

TEST(Fp8Counts, EveryLayoutCountsTheSame) {
  const std::vector<StepTally> alone = counts_of("");
  EXPECT_GT(counted(alone, ".flushed.share", 0), 0u);
  EXPECT_GT(counted(alone, ".subnormal.share", 0), 0u);
  const std::string zero3 = "[[strategy]]\nplugin = 'zero'\nstage = 3\n",
                    full = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";
  for (const std::string& layout :
       {axis("dp", "data"), axis("dp", "data") + zero3, axis("dp", "data") + full, axis("tp", "tensor"),
        axis("tp", "tensor", "sequence = true\n"), axis("pp", "pipeline", "schedule = '1f1b'\n"),
        axis("pp", "pipeline", "schedule = 'zb-h1'\n"),
        "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n" + zero3})
    expect_alike(counts_of(layout), alone, layout);
  expect_alike(counts_of("", {"batch.micro=4"}), alone, "one microbatch");
  const std::vector<std::string> saved = {"fp8.activations=true"};
  expect_alike(counts_of(axis("tp", "tensor"), saved), alone, "saved in codes");
  expect_alike(counts_of(axis("dp", "data"), {"fp8.cache_weights=true"}), alone, "cached weights");
}

TEST(Fp8Counts, LongSequencesCountTheSame) {
  const std::vector<std::string> sets = {"model.seq=512", "batch.global=2"};
  expect_alike(counts_of(axis("cp", "context"), sets), counts_of("", sets), "context");
}

TEST(Fp8Counts, AreNamedByTheProductThatReadsThem) {
  const std::vector<StepTally> tallies = counts_of("", {"model.plugin=llama", "model.kv_heads=2"});
  std::vector<std::string> names;
  for (const StepTally& tally : tallies)
    if (tally.name.ends_with(".amax.largest")) {
      names.push_back(tally.name);
      EXPECT_EQ(tally.layers, 2);
      for (const double number : tally.numbers) EXPECT_GT(number, 0) << tally.name;
    }
  for (const char* what : {"input", "input_for_weight", "weight", "gradient", "gradient_for_weight"})
    EXPECT_EQ(std::count_if(names.begin(), names.end(),
                            [&](const std::string& name) {
                              return name.ends_with(std::string(".") + what + ".amax.largest");
                            }),
              4)
        << what;
  EXPECT_EQ(names.size(), 20u);
}

TEST(Fp8Counts, OfOneStepInSoManyAlone) {
  EXPECT_TRUE(counts_of("", {}, 1).empty());
  const std::size_t of_one = counts_of("", {}, 2).size();
  EXPECT_GT(of_one, 0u);
  EXPECT_EQ(counts_of("", {}, 3).size(), of_one);
  EXPECT_EQ(counts_of("", {}, 4).size(), 2 * of_one);
}

TEST(Fp8Counts, LayersInComputeCountNothing) {
  const std::vector<StepTally> tallies =
      counts_of("", {"model.layers=4", "fp8.first_in_compute=1", "fp8.last_in_compute=2"});
  ASSERT_FALSE(tallies.empty());
  for (const StepTally& tally : tallies) {
    if (!tally.name.ends_with(".exponent.largest")) continue;
    ASSERT_EQ(tally.numbers.size(), 4u);
    for (std::size_t layer = 0; layer < 4; ++layer)
      EXPECT_EQ(tally.numbers[layer] != -127, layer == 1) << tally.name << layer;
  }
}

TEST(Fp8Counts, ChangeNoBit) {
  const auto losses = [](const std::string& text, const std::string& every) {
    return run_ranks(
        recipe_of(text, {"precision.compute=bf16", "precision.state=fp32", "fp8.statistics_every=" + every}),
        3);
  };
  for (const std::string& text : {std::string(), axis("tp", "tensor")})
    EXPECT_EQ(losses(text, "1"), losses(text, "0"));
}

TEST(Fp8Counts, AreTwoSumsOfTheStepAndNothingWhenOff) {
  const Assembly on(recipe_of("", {}), plugins()), off(recipe_of("", {"fp8.statistics_every=0"}), plugins());
  EXPECT_FALSE(off.program().requests().quantization.has_value());
  ASSERT_TRUE(on.program().requests().quantization.has_value());
  const QuantizationReport& report = *on.program().requests().quantization;
  std::set<std::int64_t> rows;
  for (const QuantizationReport::Rows& value : report.values)
    for (std::int64_t layer = 0; layer < value.layers; ++layer)
      EXPECT_TRUE(rows.insert(value.first + layer).second) << value.name;
  EXPECT_EQ(rows.size(), 2u * 20u);
  const Value& counts = on.program().value(report.counts);
  EXPECT_EQ(counts.dims[0].extent, 2 * 20);
  EXPECT_EQ(*rows.rbegin(), 2 * 20 - 1);
  EXPECT_NE(on.fingerprint(), off.fingerprint());
}

TEST(Fp8Counts, TooMuchThatBecomesZeroIsSaidOnce) {
  const std::vector<StepTally> tallies = {{"block.fp8.up.input.flushed.share", 2, {0.001, 0.002}},
                                          {"block.fp8.down.gradient.flushed.share", 2, {0.005, 0.25}},
                                          {"block.fp8.down.gradient.subnormal.share", 2, {0.5, 0.5}}};
  EXPECT_EQ(FlushedWarning("strategy.1", 0.25).text(7, tallies), "");
  FlushedWarning warning("strategy.1", 0.0015);
  const std::string said = warning.text(7, tallies);
  EXPECT_EQ(
      said.find("step 7: of the numbers of 'block.fp8.down.gradient' in layer 1 that are not zero, 25 % "
                "became zero when they were quantized, more than the bound of [strategy.1], 0.0015, as did "
                "those of "
                "other values (1)"),
      0u)
      << said;
  EXPECT_EQ(warning.text(8, tallies), "");
}

}  // namespace
}  // namespace prun::test::fp8_counts_test
