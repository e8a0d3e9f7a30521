// Masked tokens: which they are and what stands in their place follows from seed, sample and position, and
// what a recipe says of them must fit its model.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/loop/samples.hpp"

namespace prun::test::masked_test {
namespace {

constexpr std::int32_t vocab = 50, mask = 49;

struct Sample {
  std::vector<std::int32_t> tokens, targets;
};

Sample ascending(std::int32_t seq) {
  Sample sample;
  for (std::int32_t i = 0; i < seq; ++i) {
    sample.tokens.push_back(i % 40);
    sample.targets.push_back((i + 1) % 40);
  }
  return sample;
}

Sample masked(std::int64_t number, std::int32_t seq, std::uint64_t seed = 7, double share = 0.15) {
  Sample sample = ascending(seq);
  MaskedTokens(share, mask, {0, 3}, vocab, seed).apply(number, sample.tokens, sample.targets);
  return sample;
}

TEST(MaskedTokens, AreAsManyAsAskedForAndEightInTenOfThemHidden) {
  double chosen = 0, hidden = 0, other = 0, may = 0;
  for (std::int64_t number = 0; number < 2000; ++number) {
    const Sample was = ascending(200), is = masked(number, 200);
    for (std::size_t i = 0; i < was.tokens.size(); ++i) {
      const bool never = was.tokens[i] == 0 || was.tokens[i] == 3;
      may += !never;
      if (is.targets[i] < 0) {
        EXPECT_EQ(is.tokens[i], was.tokens[i]);
        continue;
      }
      EXPECT_FALSE(never);
      EXPECT_EQ(is.targets[i], was.tokens[i]);
      ++chosen;
      hidden += is.tokens[i] == mask;
      other += is.tokens[i] != mask && is.tokens[i] != was.tokens[i];
      EXPECT_TRUE(is.tokens[i] != 0 && is.tokens[i] != 3);
    }
  }
  EXPECT_NEAR(chosen / may, 0.15, 0.005);
  EXPECT_NEAR(hidden / chosen, 0.8 + 0.1 * 3 / 50, 0.01);  // the mask itself and those of `never` among all
  EXPECT_NEAR(other / chosen, 0.1 * 46 / 50, 0.01);
}

TEST(MaskedTokens, FollowFromSeedSampleAndPosition) {
  const Sample one = masked(5, 60), longer = masked(5, 90);
  EXPECT_EQ(masked(5, 60).tokens, one.tokens);
  EXPECT_TRUE(std::equal(one.targets.begin(), one.targets.end(), longer.targets.begin()));
  EXPECT_NE(masked(6, 60).targets, one.targets);
  EXPECT_NE(masked(5, 60, 8).targets, one.targets);
}

// Of a token that is no target, as in padding, nothing is learned here either.
TEST(MaskedTokens, AreTokensThatCount) {
  Sample sample = ascending(40);
  std::fill(sample.targets.begin() + 9, sample.targets.end(), -1);
  MaskedTokens(1, mask, {}, vocab, 1).apply(0, sample.tokens, sample.targets);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(sample.targets[i] >= 0, i <= 9) << i;
}

std::string refusal(std::vector<std::string> sets, const std::string& model = "bert") {
  sets.insert(sets.begin(), {"model.plugin=" + model, "model.layers=1", "model.hidden=8", "model.heads=2",
                             "model.vocab=24", "model.seq=8"});
  try {
    const std::string text =
        "[run]\nname = 'm'\nsteps = 1\n[model]\nplugin = ''\nseq = 8\n[data]\nplugin = 'ragged'\nvocab = 23\n"
        "[batch]\nglobal = 2\nmicro = 2\n[optimizer]\nplugin = 'sgd'\nlr = 1e-3\n[device]\nplugin = 'cpu'\n";
    const Assembly assembly(Recipe::parse(text, "masked.toml", sets, plugins().catalog()), plugins());
    open_data(assembly, plugins());
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "accepted";
}

void expect_refusal(const std::string& said, const std::string& part) {
  EXPECT_NE(said.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << said;
}

TEST(MaskedTokens, AModelAndItsDataFit) {
  const std::vector<std::string> right = {"data.mask=0.2", "data.mask_token=23", "data.mask_never=[0]"};
  EXPECT_EQ(refusal(right), "accepted");
  expect_refusal(refusal({}), "sees the tokens on both sides, the next one among them");
  expect_refusal(refusal({"data.mask=0.2"}), "set data.mask_token to its number");
  expect_refusal(refusal(right, "gpt"), "model 'gpt' predicts the next token from those before it");
  expect_refusal(refusal({"data.mask=0.2", "data.mask_token=24"}),
                 "data.mask_token = 24 is outside of model.vocab = 24");
  expect_refusal(refusal({"data.mask=0.2", "data.mask_token=23", "data.mask_never=[1, 99]"}),
                 "data.mask_never = 99 is outside of model.vocab = 24");
  expect_refusal(refusal({"data.mask=0.2", "data.mask_token=23", "run.loss_by_role=true"}),
                 "leave one of the two out");
}

}  // namespace
}  // namespace prun::test::masked_test
