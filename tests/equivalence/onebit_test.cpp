// What updates make of gradients and ranks sum in signs: one rank that holds as many summands and errors has
// the same numbers, checkpoints go on, and bytes are those of the signs.
#include "prun/block_codes.hpp"
#include "support/coded_runs.hpp"

namespace prun::test::onebit_test {
namespace {

const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64"};

std::string data(int ranks) { return data_parallel(ranks); }

// Its second moments are zeros: eps stands for their root.
Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets,
                 const std::vector<std::string>& more = exact) {
  std::vector<std::string> all = {
      "model.hidden=64",       "model.heads=4",      "model.ffn=128",    "model.seq=8",
      "batch.micro=1",         "batch.global=2",     "optimizer.clip=1", "optimizer.plugin=onebit_adam",
      "precision.reduce=1bit", "optimizer.eps=0.01", "device.pin=false", "device.threads=1",
      "run.poison=true"};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

class OneBit : public testing::TestWithParam<CodedLayout> {};

TEST_P(OneBit, EqualsOneRankThatHoldsAllSummands) {
  expect_equals_one_rank(recipe_of(GetParam().text, GetParam().sets), 5);
}

const std::string recompute = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  average = "[[strategy]]\nplugin = 'average'\ndecay = 0.9\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, OneBit,
    testing::Values(CodedLayout{"data2", data(2), {}}, CodedLayout{"data4", data(4), {"batch.global=4"}},
                    CodedLayout{"data3_untied", data(3), {"batch.global=3", "model.tied=false"}},
                    CodedLayout{"llama", data(2), {"model.plugin=llama", "model.kv_heads=2"}},
                    CodedLayout{"recomputed", data(2) + recompute, {}},
                    CodedLayout{"averaged", data(2) + average, {}},
                    CodedLayout{"tensor", dp2tp2, {"model.hidden=256", "model.ffn=256"}},
                    CodedLayout{"pipeline", dp2pp2, {"model.layers=4", "model.tied=false", "batch.micro=1"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// ---------------------------------------------------------------- what is kept

TEST(OneBitRanks, HaveTheSameParameters) {
  const Numbers all = trained(recipe_of(data(2), {}, {"precision.compute=bf16"}), 4);
  EXPECT_EQ(all[0], all[1]);
}

TEST(OneBitCheckpoints, GoOnWithTheSameBits) {
  const std::string out = (temporary_folder() / "onebit-resume").string();
  const Recipe recipe = recipe_of(data(2), {"run.out=" + out, "precision.compute=bf16"}, {});
  Numbers through = trained(recipe, 5);
  trained(recipe, 2, true);
  for (std::vector<double>& numbers : through) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(recipe.with("run.resume", out), 3), through);
}

// One rank that holds two has their errors too.
TEST(OneBitCheckpoints, OfTwoRanksGoOnOnOneThatHoldsTwo) {
  const std::string out = (temporary_folder() / "onebit-one").string();
  trained(recipe_of(data(2), {"run.out=" + out}), 2, true);
  const std::vector<double> two = trained(recipe_of(data(2), {"run.resume=" + out}), 3).front(),
                            one = trained(recipe_of(data(1), {"run.resume=" + out}), 3).front();
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-9) << i;
}

TEST(OneBitCheckpoints, ErrorsOfAnotherLayoutBeginAnewWhereThatIsSaid) {
  const std::string out = (temporary_folder() / "onebit-layout").string();
  const Numbers saved = trained(recipe_of(data(2), {"run.out=" + out}), 2, true);
  const auto on = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"run.resume=" + out, "batch.global=4"};
    all.insert(all.end(), sets.begin(), sets.end());
    return recipe_of(data(4), all);
  };
  try {
    trained(on({}), 0);
    FAIL() << "errors of two ranks were taken for those of four";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("if it is to begin anew, add --set run.allow_changed=precision.reduce"),
              std::string::npos)
        << said;
  }
  std::vector<double> parameters = saved.front();
  parameters.erase(parameters.begin(), parameters.begin() + 2);
  EXPECT_EQ(trained(on({"run.allow_changed=precision.reduce"}), 0).back(), parameters);
}

// The warm-up: moments are there, errors are not.
TEST(OneBitCheckpoints, GoOnFromAdamW) {
  const std::string out = (temporary_folder() / "onebit-adamw").string();
  trained(recipe_of(data(2), {"run.out=" + out, "optimizer.plugin=adamw", "precision.reduce=state"}), 8,
          true);
  std::vector<double> losses =
      trained(recipe_of(data(2), {"run.resume=" + out, "optimizer.eps=1e-8", "optimizer.frozen_at=8",
                                  "run.allow_changed=precision.reduce"}),
              20)
          .front();
  EXPECT_LT(losses[19], losses[0]);
}

// ---------------------------------------------------------------- bytes

// Of a GPT whose table is untied, what comes in blocks: of two ranks each sends the codes of the other's
// half, and those of the half that it has summed, where an all-reduce sends as many numbers as there are.
TEST(OneBitBytes, AreASixteenthOfBf16AndAScaleForEachBlock) {
  constexpr std::int64_t hidden = 64, ffn = 128, vocab = 128, layers = 2;
  constexpr std::int64_t weights = 2 * vocab * hidden + layers * (4 * hidden * hidden + 2 * hidden * ffn);
  const std::map<std::string, std::uint64_t> sent = sent_in_a_step(recipe_of(
      data(2), {"model.vocab=128", "model.tied=false", "run.poison=false"}, {"precision.compute=bf16"}));
  EXPECT_EQ(sent.at("dp.gather"), weights / code_block * code_block_bytes(1));
  EXPECT_EQ(code_block_bytes(1), code_block * 2 / 16 + 4);
  EXPECT_LT(sent.at("dp.reduce"), weights / 4);  // gains, biases and positions, as they are
}

// ---------------------------------------------------------------- what cannot be

TEST(OneBitRefusals, AreNoneOfAZeroThatKeepsNothingInParts) {
  EXPECT_EQ(refusal(recipe_of(data(2) + "[[strategy]]\nplugin = 'zero'\nstage = 0\n", {})), "");
}

TEST(OneBitRefusals, VerifySaysWhatOneRankCannotDoAlike) {
  expect_refused(refusal(recipe_of(data(2), {"batch.global=8"}), true),
                 "a rank adds up several microbatches before it rounds");
}

}  // namespace
}  // namespace prun::test::onebit_test
