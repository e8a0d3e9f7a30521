// Strategies that split different parts of a model over different axes equal one rank, in any order of the
// mesh: what is summed over which axes differs from parameter to parameter, and so from square to square.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::coverage_test {
namespace {

struct Layout {
  const char* model;
  std::vector<const char*> spreads;  // what each strategy splits, on axes "a", "b", "c"
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) {
    out << l.model;
    for (const char* dims : l.spreads) out << " " << dims;
    return out;
  }
};

// The axes of the mesh in this order, the strategies in theirs.
Recipe recipe_of(const Layout& layout, const std::string& axes, const std::vector<std::string>& sets = {}) {
  std::string text = "[mesh]\n";
  for (const char axis : axes) text += std::string(1, axis) + " = 2\n";
  for (std::size_t i = 0; i < layout.spreads.size(); ++i)
    text += std::string("[[strategy]]\nplugin = 'spread'\naxis = '") + static_cast<char>('a' + i) +
            "'\ndims = [" + layout.spreads[i] + "]\n";
  std::vector<std::string> all = {"model.plugin=" + std::string(layout.model),
                                  "model.hidden=16",
                                  "model.heads=8",
                                  "model.ffn=32",
                                  "model.seq=8",
                                  "batch.micro=2",
                                  "device.pin=false",
                                  "device.threads=1",
                                  "optimizer.clip=0.05",
                                  "precision.compute=fp64",
                                  "precision.state=fp64",
                                  "run.poison=true"};
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

class Coverage : public testing::TestWithParam<Layout> {};

TEST_P(Coverage, EqualsOneRankInAnyOrderOfTheMesh) {
  std::string axes = std::string("abc").substr(0, GetParam().spreads.size());
  do {
    const LayoutVerdict verdict = verify_layout(recipe_of(GetParam(), axes), plugins().places(), 4);
    EXPECT_TRUE(verdict.equal()) << axes << "\n" << to_text(verdict);
  } while (std::next_permutation(axes.begin(), axes.end()));
}

constexpr const char *ffn = "'ffn'", *heads = "'heads'", *vocab = "'vocab'", *seq = "'seq'",
                     *tensor = "'heads', 'ffn', 'vocab'", *heads_vocab = "'heads', 'vocab'",
                     *vocab_ffn = "'vocab', 'ffn'";

INSTANTIATE_TEST_SUITE_P(Layouts, Coverage,
                         testing::Values(Layout{"gpt", {ffn, tensor}}, Layout{"llama", {ffn, tensor}},
                                         Layout{"gpt", {tensor, ffn}}, Layout{"gpt", {ffn, heads}},
                                         Layout{"gpt", {ffn, vocab}}, Layout{"llama", {heads, vocab_ffn}},
                                         Layout{"gpt", {heads_vocab, vocab_ffn}}, Layout{"gpt", {seq, ffn}},
                                         Layout{"llama", {heads, ffn, vocab}},
                                         Layout{"gpt", {ffn, tensor, heads_vocab}},
                                         Layout{"gpt", {seq, ffn, tensor}}));

}  // namespace
}  // namespace prun::test::coverage_test
