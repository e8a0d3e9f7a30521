// Inputs that ranks gather for products in fp8 alone travel in codes, where ranks share out sequences between
// layers: bits are those of a gather of numbers.
#include "inspect/fp8.hpp"

#include "inspect/report.hpp"
#include "support/coded_runs.hpp"

namespace prun::test::gathered_inputs_test {
namespace {

const std::string codes = "fp8.all_gather_inputs=true";

std::string tensor(int ranks) {
  return "[mesh]\ntp = " + std::to_string(ranks) + "\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n";
}

// Sequences of which two ranks have whole squares each.
Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets,
                 const std::vector<std::string>& more = exact_and_poisoned) {
  return recipe_in_fp8(text, {{"model.seq=256", "batch.micro=2", "batch.global=4"}, more, sets});
}

std::vector<std::string> with_codes(std::vector<std::string> sets) {
  sets.push_back(codes);
  return sets;
}

GatheredInputs inputs_of(const Recipe& recipe) {
  const Assembly assembly(recipe, plugins());
  GatheredInputs all;
  for (Id id = 0; id < assembly.program().segment_count(); ++id) {
    const GatheredInputs of = gathered_inputs(assembly.program(), id);
    if (of.in_codes > 0) all = of;
  }
  return all;
}

// ---------------------------------------------------------------- numbers

class GatheredInputCodes : public testing::TestWithParam<CodedLayout> {};

TEST_P(GatheredInputCodes, EqualOneRank) {
  const Recipe recipe = recipe_of(GetParam().text, with_codes(GetParam().sets));
  EXPECT_GT(inputs_of(recipe).in_codes, 0);
  expect_equals_one_rank(recipe, 2);
}

const std::vector<std::string> llama = {"model.plugin=llama", "model.kv_heads=2"};
const std::string
    with_dp =
        "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n"
        "sequence = true\n",
    with_pp =
        "[mesh]\npp = 2\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n"
        "[[strategy]]\nplugin = 'pipeline'\nschedule = 'zb-h1'\n",
    zero3 = "[[strategy]]\nplugin = 'zero'\nstage = 3\n",
    with_cp =
        "[mesh]\ncp = 2\ntp = 2\n[[strategy]]\nplugin = 'context'\n[[strategy]]\nplugin = 'tensor'\n"
        "sequence = true\n",
    recompute = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, GatheredInputCodes,
    testing::Values(CodedLayout{"gpt", tensor(2), {}}, CodedLayout{"llama", tensor(2), llama},
                    CodedLayout{"short_chunks", tensor(2), {"model.seq=128"}},
                    CodedLayout{"pipeline", with_pp, {"model.layers=4"}},
                    CodedLayout{"context", with_cp, {"model.seq=1024", "batch.global=2"}},
                    CodedLayout{"recomputed", tensor(2) + recompute, {}},
                    CodedLayout{"side_by_side", tensor(2), {"batch.interleave=2"}},
                    CodedLayout{"saved_in_codes", tensor(2), {"fp8.activations=true"}},
                    CodedLayout{"codes_of_weights", tensor(2), {"fp8.cache_weights=true"}},
                    CodedLayout{"codes_of_gathered_weights", with_dp + zero3, {"fp8.cache_weights=true"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// In all formats, since what is rounded once is a number of each.
TEST(GatheredInputCodesRun, HaveTheBitsOfAGatherOfNumbers) {
  for (const char* compute : {"bf16", "fp16", "fp32"})
    for (const std::vector<std::string>& on :
         {std::vector<std::string>{},
          {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20"}}) {
      const std::vector<std::string> in = {std::string("precision.compute=") + compute,
                                           "precision.state=fp32"};
      EXPECT_EQ(trained(recipe_of(tensor(2), with_codes(on), in), 3),
                trained(recipe_of(tensor(2), on, in), 3))
          << compute << testing::PrintToString(on);
    }
}

TEST(GatheredInputCodesRun, EvaluateToTheSameBits) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const auto loss = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"eval.every=1", "eval.batches=1"});
    double evaluated = 0;
    run_local_ranks(
        recipe_of(tensor(2) + validation, sets, {"precision.compute=bf16", "precision.state=fp32"}),
        plugins().places(), [&](Trainer& trainer) {
          const double here = trainer.evaluate().whole.loss;
          if (trainer.assembly().rank() == 0) evaluated = here;
        });
    return evaluated;
  };
  EXPECT_EQ(loss({codes}), loss({}));
}

// ---------------------------------------------------------------- bytes

// Forward gathers two inputs of a layer's products, backward the same once more for gradients of weights,
// and two gradients, which are multiplied in blocks of two kinds. Where chunks cut squares, backward gathers
// numbers.
TEST(GatheredInputCodesPlan, SaysHowManyGathersAreOfCodes) {
  const GatheredInputs all = inputs_of(recipe_of(tensor(2), {codes}));
  EXPECT_EQ(all.in_codes, 4);
  EXPECT_EQ(all.gathers, 6);
  EXPECT_EQ(inputs_of(recipe_of(tensor(2), {codes, "model.seq=128"})).in_codes, 2);
  const std::string text = plan_text(Assembly(recipe_of(tensor(2), {codes}), plugins()), {});
  EXPECT_NE(text.find("inputs      quantized: 4 of 6 gathers of activations of block\n"), std::string::npos)
      << text;
}

// Each of two ranks sends its half: 132 bytes of 128 numbers instead of 256.
TEST(GatheredInputCodesBytes, AreOneAndAScaleForEachBlock) {
  const auto sent = [](const std::vector<std::string>& sets) {
    return static_cast<std::int64_t>(
        sent_in_a_step(recipe_of(tensor(2), sets, {"precision.compute=bf16", "precision.state=fp32"}))
            .at("tp"));
  };
  constexpr std::int64_t layers = 2, microbatches = 2, elements = 2 * 256 * 256;
  EXPECT_EQ(sent({}) - sent({codes}),
            layers * microbatches * 4 * (elements / 2 * 2 - elements / 2 / 128 * 132));
}

// ---------------------------------------------------------------- what cannot be

TEST(GatheredInputCodesRefusals, SayWhatWhereAndWhatToDo) {
  for (const std::string key : {"first_in_compute", "statistics_every"})
    expect_refused(refusal(recipe_of(tensor(2), {codes, "fp8." + key + "=1"})),
                   "cannot combine " + key + " with all_gather_inputs");
}

}  // namespace
}  // namespace prun::test::gathered_inputs_test
