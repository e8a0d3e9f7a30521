// Spans that are cut out of texts: how many, what encoder and decoder get, and what a recipe must say of
// them.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/loop/samples.hpp"

namespace prun::test::spans_test {
namespace {

constexpr std::int32_t first_span = 99, end = 1, start = 0;

struct Sample {
  std::vector<std::int32_t> tokens, targets;
};

Sample corrupted(const SpanSizes& sizes, std::int64_t number, std::uint64_t seed = 7) {
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < sizes.text; ++i) text.push_back(2 + static_cast<std::int32_t>(i));
  const auto seq = static_cast<std::size_t>(sizes.inputs() + sizes.outputs());
  Sample sample{std::vector<std::int32_t>(seq), std::vector<std::int32_t>(seq)};
  CorruptedSpans(sizes, {first_span, end, start}, seed).apply(number, text, sample.tokens, sample.targets);
  return sample;
}

TEST(CorruptedSpans, AreAsManyAsT5Cuts) {
  EXPECT_EQ(span_sizes(568, 0.15, 3), (SpanSizes{568, 85, 28}));
  EXPECT_EQ(span_sizes(568, 0.15, 3).inputs(), 512);
  EXPECT_EQ(span_sizes(568, 0.15, 3).outputs(), 114);
}

// What is left in the encoder and what the decoder writes are the text, in order.
TEST(CorruptedSpans, TogetherAreTheText) {
  const SpanSizes sizes = span_sizes(60, 0.3, 2);
  for (std::int64_t number = 0; number < 50; ++number) {
    const Sample sample = corrupted(sizes, number);
    const auto inputs = static_cast<std::size_t>(sizes.inputs());
    const std::vector<std::int32_t> in(sample.tokens.begin(), sample.tokens.begin() + sizes.inputs()),
        out(sample.targets.begin() + sizes.inputs(), sample.targets.end());
    EXPECT_EQ(in.back(), end);
    EXPECT_EQ(out.back(), end);
    EXPECT_EQ(sample.tokens[inputs], start);
    EXPECT_TRUE(std::equal(out.begin(), out.end() - 1, sample.tokens.begin() + sizes.inputs() + 1));
    EXPECT_EQ(std::count(sample.targets.begin(), sample.targets.begin() + sizes.inputs(), -1),
              sizes.inputs());
    std::vector<std::int32_t> text;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < in.size(); ++i) {
      if (in[i] <= first_span - sizes.spans) {
        text.push_back(in[i]);
        continue;
      }
      ASSERT_EQ(out[at++], in[i]);
      const std::size_t began = at;
      while (out[at] != end && out[at] <= first_span - sizes.spans) text.push_back(out[at++]);
      EXPECT_GT(at, began);
    }
    ASSERT_EQ(text.size(), 60u);
    for (std::size_t i = 0; i < text.size(); ++i) EXPECT_EQ(text[i], static_cast<std::int32_t>(2 + i));
  }
  EXPECT_EQ(corrupted(sizes, 3).tokens, corrupted(sizes, 3).tokens);
  EXPECT_NE(corrupted(sizes, 3).tokens, corrupted(sizes, 4).tokens);
  EXPECT_NE(corrupted(sizes, 3).tokens, corrupted(sizes, 3, 8).tokens);
}

std::string refusal(std::vector<std::string> sets, const std::string& model = "t5") {
  sets.insert(sets.begin(), {"model.plugin=" + model, "model.layers=1", "model.hidden=8", "model.heads=2",
                             "model.vocab=24"});
  try {
    const std::string text =
        "[run]\nname = 's'\nsteps = 1\n[model]\nplugin = ''\nseq = 24\n[data]\nplugin = 'ragged'\nvocab = "
        "20\n"
        "[batch]\nglobal = 2\nmicro = 2\n[optimizer]\nplugin = 'sgd'\nlr = 1e-3\n[device]\nplugin = 'cpu'\n";
    const Assembly assembly(Recipe::parse(text, "spans.toml", sets, plugins().catalog()), plugins());
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

TEST(CorruptedSpans, AModelAndItsDataFit) {
  const std::vector<std::string> cut = {"data.spans=0.3", "data.span_length=2", "data.span_token=23"};
  const auto with = [](std::vector<std::string> sets, const std::string& more) {
    sets.push_back(more);
    return sets;
  };
  EXPECT_EQ(refusal(with(cut, "model.inputs=15")), "accepted");
  expect_refusal(refusal({"model.inputs=15"}), "set data.spans to the share that is");
  expect_refusal(refusal({"data.spans=0.3", "model.inputs=15"}),
                 "set data.span_token to the first one's number");
  expect_refusal(refusal(with(cut, "model.inputs=14")), "set model.inputs = 15");
  expect_refusal(refusal(with(with(cut, "model.inputs=15"), "model.seq=31")),
                 "the next shorter ones have 29");
  expect_refusal(refusal(with(with(cut, "model.inputs=15"), "data.span_token=24")),
                 "data.span_token = 24 is outside of model.vocab = 24");
  expect_refusal(refusal(with(with(cut, "model.inputs=15"), "data.span_token=1")),
                 "cannot mark 3 spans of a sample");
  expect_refusal(refusal(cut, "gpt"), "model 'gpt' has no encoder and decoder");
}

}  // namespace
}  // namespace prun::test::spans_test
