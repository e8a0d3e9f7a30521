// Layers with the gated delta rule between others that attend: every layout equals one rank, in fp64.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"

namespace prun::test::delta_rule_test {
namespace {

// The second of three layers attends. Its two groups have four queries each; the others have four key heads.
const std::vector<std::string> small = {"model.plugin=llama",
                                        "model.family=qwen3_next",
                                        "model.layers=3",
                                        "model.hidden=16",
                                        "model.heads=8",
                                        "model.kv_heads=2",
                                        "model.head_dim=4",
                                        "model.ffn=16",
                                        "model.seq=16",
                                        "model.attends_every=2",
                                        "model.delta_key_heads=4",
                                        "model.delta_value_heads=8",
                                        "model.delta_key_dim=4",
                                        "model.delta_value_dim=3",
                                        "device.threads=1",
                                        "device.pin=false",
                                        "batch.micro=1",
                                        "batch.global=4",
                                        "run.poison=true",
                                        "precision.compute=fp64",
                                        "precision.state=fp64"};
const std::vector<std::string> apart = {"data.mask_documents=true", "data.end_of_text=7"};
const std::vector<std::string> long_ones = {"model.seq=144"};  // are of three chunks, of which one is short
const std::vector<std::string> with_experts = {"model.experts=4", "model.choices=2", "model.expert_ffn=8",
                                               "model.shared_ffn=8", "model.shared_gate=true"};

struct Case {
  const char* name;
  std::string layout;
  std::vector<std::string> sets = {};
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

std::string tensor(int ranks, bool sequence) {
  return "[mesh]\ntp = " + std::to_string(ranks) +
         "\n[[strategy]]\nplugin = 'tensor'\nsequence = " + (sequence ? "true\n" : "false\n");
}

std::string zero(int stage) {
  return "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = " +
         std::to_string(stage) + "\n";
}

std::string context(int ranks, const std::string& way) {
  return "[mesh]\ncp = " + std::to_string(ranks) + "\n[[strategy]]\nplugin = 'context'\n" + way + "\n";
}

std::vector<Case> cases() {
  const std::string pipeline = "[mesh]\npp = 3\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";
  const std::string recompute =
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'recompute'\n";
  return {
      {"tensor", tensor(2, false)},
      {"tensor_sequence", tensor(2, true), with(apart, long_ones)},
      {"tensor_experts", tensor(2, true), with_experts},
      {"data", zero(1)},
      {"zero_3", zero(3), with(with_experts, apart)},
      {"pipeline", pipeline, apart},
      {"recompute", recompute, apart},
      {"offload",
       "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'offload'\n"
       "parameters = 'host'\ngradients = 'host'\nactivations = 'host'\n",
       {"batch.order=breadth_first"}},
      {"context", context(2, "")},
      {"context_apart", context(2, ""), apart},
      {"context_of_chunks", context(4, ""), with(apart, long_ones)},
      {"context_in_order", context(2, "balance = 'none'"), apart},
      {"context_in_order_of_chunks", context(3, "balance = 'none'"), with(apart, long_ones)},
      {"context_in_pieces", context(2, "pieces = 2"), apart},
      {"context_beside_tensor",
       "[mesh]\ncp = 2\ntp = 2\n[[strategy]]\nplugin = 'context'\n[[strategy]]\nplugin = 'tensor'\n"
       "sequence = true\n",
       apart},
      {"context_beside_recompute", context(2, "") + "[[strategy]]\nplugin = 'recompute'\n", apart},
      {"context_beside_chosen_ops",
       context(2, "") +
           "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['delta_rule', 'short_conv']\n"},
      {"ulysses", context(2, "method = 'ulysses'"), apart},
      {"ulysses_of_chunks", context(2, "method = 'ulysses'"), with(apart, long_ones)},
      {"ulysses_beyond_groups", context(4, "method = 'ulysses'")},
      {"tensor_and_pipeline",
       "[mesh]\npp = 3\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n"
       "[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n",
       apart}};
}

class DeltaRule : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Layouts, DeltaRule, testing::ValuesIn(cases()),
                         [](const auto& c) { return std::string(c.param.name); });

TEST_P(DeltaRule, EqualsOneRank) {
  const LayoutVerdict verdict =
      verify_layout(tiny_recipe(with(small, GetParam().sets), GetParam().layout), plugins().places(), 3);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_LT(verdict.loss.value, 1e-13) << to_text(verdict);
  EXPECT_LT(verdict.parameter.value, 1e-9) << to_text(verdict);
}

// Returns the loss of one sequence: all of these tokens but the last one, which is a target.
double loss_of(const std::vector<std::int32_t>& tokens, const std::string& model) {
  const std::string path = write_tokens(temporary_folder() / (model + ".documents"), tokens).string();
  const Recipe recipe =
      recipe_from(hugging_face(model), model,
                  {"data.path=" + path, "model.seq=" + std::to_string(tokens.size() - 1), "batch.global=1",
                   "batch.micro=1", "precision.compute=fp64", "precision.state=fp64",
                   "data.mask_documents=true", "data.end_of_text=7"});
  const Assembly assembly(recipe, plugins());
  Trainer trainer(assembly, plugins());
  return trainer.step().loss;
}

// State and convolution begin anew with each document, wherever chunks of positions begin: the first ends
// within a chunk, the third one passes two of them.
TEST(DeltaRule, DocumentsAreWhatTheyAreOneByOne) {
  const std::vector<std::size_t> lengths = {3, 40, 100, 1, 17};
  for (const char* model : {"qwen3_next", "qwen3_5"}) {
    std::vector<std::int32_t> all;
    for (const std::size_t length : lengths) {
      for (std::size_t i = 1; i < length; ++i)
        all.push_back(static_cast<std::int32_t>(8 + all.size() * 37 % 50));
      all.push_back(7);
    }
    all.push_back(9);
    // The token behind a document's end is no target.
    double sum = 0, targets = 0;
    std::ptrdiff_t begin = 0;
    for (const std::size_t length : lengths) {
      const auto from = all.begin() + begin, end = from + static_cast<std::ptrdiff_t>(length);
      const double own = static_cast<double>(length) - 1;
      if (own > 0) sum += own * loss_of({from, end + 1}, model);
      targets += own;
      begin = end - all.begin();
    }
    EXPECT_NEAR(loss_of(all, model), sum / targets, 1e-12) << model;
  }
}

}  // namespace
}  // namespace prun::test::delta_rule_test
