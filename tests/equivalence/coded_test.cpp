// What ranks exchange in codes: numbers are those of one rank that rounds in the same places, and the bytes
// are what the codes have.
#include "prun/block_codes.hpp"
#include "support/coded_runs.hpp"
#include "support/layouts.hpp"

namespace prun::test::coded_test {
namespace {

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}
std::string data(int ranks) { return data_parallel(ranks); }
const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64", "device.pin=false",
                                        "device.threads=1", "run.poison=true"};
const std::string hosts = hosts_of(2, 2);
const std::string gather = "precision.gather=int8", gather_fp8 = "precision.gather=fp8",
                  sum8 = "precision.reduce=int8", sum4 = "precision.reduce=int4";

// Runs of 128 elements of what two ranks split.
std::vector<std::string> with_wide(std::vector<std::string> sets) {
  sets.insert(sets.end(), {"model.hidden=256", "model.ffn=256"});
  return sets;
}

// Weights of a block come in blocks of codes and are large enough for them, and its vectors are not.
Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets,
                 const std::vector<std::string>& more = exact) {
  std::vector<std::string> all = {"model.hidden=64", "model.heads=4",  "model.ffn=128",   "model.seq=8",
                                  "batch.micro=1",   "batch.global=8", "optimizer.clip=1"};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

std::string dp2pp2_of(const std::string& schedule) {
  return "[mesh]\ndp = 2\npp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'pipeline'\n"
         "schedule = '" +
         schedule + "'\nchunks = " + (schedule == "zb-v" ? "2" : "1") + "\n";
}

class Coded : public testing::TestWithParam<CodedLayout> {};

TEST_P(Coded, EqualsOneRankThatRoundsInTheSamePlaces) {
  expect_equals_one_rank(recipe_of(GetParam().text, GetParam().sets), 4);
}

const std::string frozen = "[[optimizer.group]]\nmatch = 'block.up*'\nfrozen = true\n",
                  recompute = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  offload = "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = 'host'\n",
                  others = "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Coded,
    testing::Values(
        CodedLayout{"gathered", data(2) + zero(3), {gather}},
        CodedLayout{"gathered_fp8", data(2) + zero(3), {gather_fp8}},
        CodedLayout{
            "gathered_fp8_llama", data(4) + zero(3), {gather_fp8, "model.plugin=llama", "model.kv_heads=2"}},
        CodedLayout{"gathered_fp8_tensor", dp2tp2 + zero(3), with_wide({gather_fp8})},
        CodedLayout{"gathered_fp8_pipeline", dp2pp2 + zero(3), {gather_fp8, "model.layers=4"}},
        CodedLayout{"gathered_fp8_from_the_host", data(2) + zero(3) + offload, {gather_fp8}},
        CodedLayout{"fp8_and_4_bits", data(3) + zero(3), {gather_fp8, sum4, "batch.pad=true"}},
        CodedLayout{
            "gathered_one_by_one", data(2) + zero(3), {gather, "run.bucket_bytes=0B", "model.layers=4"}},
        CodedLayout{"gathered_untied", data(3) + zero(3), {gather, "model.tied=false", "batch.pad=true"}},
        CodedLayout{"gathered_llama", data(4) + zero(3), {gather, "model.plugin=llama", "model.kv_heads=2"}},
        CodedLayout{"gathered_recomputed", data(2) + recompute + zero(3), {gather}},
        CodedLayout{"gathered_summed_once", data(2) + zero(3), {gather, "strategy.1.reduce=step"}},
        CodedLayout{"gathered_frozen", data(2) + zero(3) + frozen, {gather}},
        CodedLayout{"gathered_from_the_host", data(2) + zero(3) + offload, {gather}},
        CodedLayout{"gathered_vertically", data(2) + zero(3), {gather, "batch.order=breadth_first"}},
        CodedLayout{"gathered_side_by_side", data(2) + zero(3), {gather, "batch.interleave=2"}},
        CodedLayout{"gathered_muon", data(2) + zero(3) + others, {gather, "optimizer.plugin=muon"}},
        CodedLayout{"gathered_tensor", dp2tp2 + zero(3), with_wide({gather})},
        CodedLayout{"gathered_pipeline", dp2pp2 + zero(3), {gather, "model.layers=4"}},
        CodedLayout{"gathered_within_hosts", hosts + zero(3) + "axis = 'gpus'\n", {gather}},
        CodedLayout{"summed_within_hosts", hosts + zero(3) + "axis = 'gpus'\n", {sum8}},
        CodedLayout{"summed_over_both", hosts + zero(2) + "axis = ['hosts', 'gpus']\n", {sum8}},
        CodedLayout{"summed_zero1", data(2) + zero(1), {sum8, "batch.micro=4"}},
        CodedLayout{"summed_zero2", data(2) + zero(2), {sum8}},
        CodedLayout{"summed_zero3", data(4) + zero(3), {sum8}},
        CodedLayout{"summed_4_bits", data(3) + zero(2), {sum4, "batch.pad=true"}},
        CodedLayout{"summed_updated_on_the_host",
                    data(2) + zero(2) + offload,
                    {sum8, "strategy.2.parameters=device"}},
        CodedLayout{"summed_muon", data(2) + zero(2) + others, {sum8, "optimizer.plugin=muon"}},
        CodedLayout{"summed_tensor", dp2tp2 + zero(2), with_wide({sum8})},
        CodedLayout{"both", data(2) + zero(3), {gather, sum8}},
        CodedLayout{"both_4_bits", data(4) + zero(3), {gather, sum4, "model.plugin=llama"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// One rank rounds as well: what is compared with is no exact run.
TEST(CodedOnOneRank, RoundsWhatSeveralWouldSend) {
  const auto trained = [](const std::vector<std::string>& sets) {
    return run_ranks(recipe_of(data(1) + zero(3), sets), 3).front();
  };
  const std::vector<double> whole = trained({});
  for (const std::vector<std::string>& sets : {std::vector{gather}, {gather_fp8}, {sum8}, {sum4}}) {
    const std::vector<double> rounded = trained(sets);
    ASSERT_EQ(rounded.size(), whole.size());
    EXPECT_NE(rounded, whole) << sets.front();
    EXPECT_NEAR(rounded[2], whole[2], 0.05 * whole[2]) << sets.front();  // the loss of the third step
  }
}

// In the formats that are trained in, on a device that copies beside what it computes.
TEST(CodedRanks, AgreeBitForBit) {
  for (const char* format : {"precision.compute=bf16", "precision.compute=fp32"})
    for (const std::vector<std::string>& on :
         {std::vector<std::string>{"comm.default=ucx"},
          {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20"}}) {
      std::vector<std::string> sets = {gather, sum8, format};
      sets.insert(sets.end(), on.begin(), on.end());
      const Recipe recipe = recipe_of(data(2) + zero(3), sets, {});
      EXPECT_EQ(run_ranks(recipe, 3), run_ranks(recipe, 3)) << format << on.front();
      EXPECT_TRUE(verify_layout(recipe, plugins().places(), 3).equal()) << format << on.front();
    }
}

// What leaves the device is the sum that it would be there.
TEST(CodedSums, LeaveForTheHostAsTheyAre) {
  const std::vector<std::string> sets = {sum8, "batch.micro=4"};
  const std::string to_host = "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\ngradients = 'host'\n";
  for (const int stage : {1, 2})
    EXPECT_EQ(run_ranks(recipe_of(data(2) + zero(stage) + to_host, sets), 4),
              run_ranks(recipe_of(data(2) + zero(stage), sets), 4))
        << stage;
}

// What travels together is rounded as it is alone.
TEST(CodedRanks, BundlesKeepEveryBit) {
  const auto trained = [](const char* bundle) {
    return run_ranks(
        recipe_of(data(2) + zero(3), {gather, sum8, std::string("run.bucket_bytes=") + bundle}, {}), 2);
  };
  EXPECT_EQ(trained("0B"), trained("1GiB"));
}

// A loss that is evaluated is that of the rounded parameters, as a step's is.
TEST(CodedRanks, EvaluateWithTheParametersThatTheyTrainWith) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const auto evaluated = [&](int ranks, const std::vector<std::string>& sets) {
    double loss = 0;
    std::vector<std::string> all = {"eval.every=1", "eval.batches=1", "data.shuffle=false",
                                    "batch.micro=" + std::to_string(8 / ranks)};
    all.insert(all.end(), sets.begin(), sets.end());
    run_local_ranks(recipe_of(data(ranks) + zero(3) + validation, all), plugins().places(),
                    [&](Trainer& trainer) {
                      const double whole = trainer.evaluate().whole.loss;
                      EXPECT_NEAR(trainer.step().loss, whole, 1e-12);
                      if (trainer.assembly().rank() == 0) loss = whole;
                    });
    return loss;
  };
  EXPECT_NEAR(evaluated(2, {gather}), evaluated(1, {gather}), 1e-12);
  EXPECT_NE(evaluated(2, {gather}), evaluated(2, {}));
}

// ---------------------------------------------------------------- checkpoints

class CodedCheckpoints : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Gathers, CodedCheckpoints, testing::Values(gather, gather_fp8),
                         [](const auto& key) { return key.param.substr(key.param.find('=') + 1); });

TEST_P(CodedCheckpoints, GoOnWithTheSameBits) {
  const std::string out = (temporary_folder() / ("coded-resume-" + GetParam())).string();
  const Recipe recipe =
      recipe_of(data(2) + zero(3), {GetParam(), sum8, "precision.compute=bf16", "run.out=" + out}, {});
  Numbers through = trained(recipe, 4);
  Numbers saved = trained(recipe, 2, true);
  const Recipe on = recipe.with("run.resume", out);
  for (std::vector<double>& numbers : through) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(on, 2), through);
  // Of the weights that are updated, not of the rounded ones.
  for (std::vector<double>& numbers : saved) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(on, 0), saved);
}

// Another layout has the same state.
TEST(CodedElsewhere, GoOnInAnotherLayout) {
  const std::string out = (temporary_folder() / "coded-elsewhere").string();
  trained(recipe_of(data(2) + zero(3), {gather, sum8, "run.out=" + out}, {}), 2, true);
  const auto on = [&](int ranks, int stage, const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"run.resume=" + out};
    all.insert(all.end(), sets.begin(), sets.end());
    return trained(recipe_of(data(ranks) + zero(stage), all, {}), 0).back();
  };
  const std::vector<double> whole = on(1, 1, {});
  EXPECT_EQ(on(4, 2, {sum4}), whole);
  EXPECT_EQ(on(1, 3, {gather, sum8}), whole);
}

// ---------------------------------------------------------------- bytes

// Elements of the blocks' weights, and of what is left of a model of so many layers: vectors that are padded
// to 128 elements, and to 128 for each rank behind the last one.
constexpr std::int64_t hidden = 64, ffn = 128, vocab = 128, layers = 2;
constexpr std::int64_t weights = 4 * hidden * hidden + 3 * hidden * ffn;

std::uint64_t sent_by(const std::string& queue, const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"model.vocab=" + std::to_string(vocab),
                                  "model.tied=false",
                                  "batch.micro=4",
                                  "run.bucket_bytes=0B",
                                  "model.plugin=llama",
                                  "model.kv_heads=4"};
  all.insert(all.end(), sets.begin(), sets.end());
  return sent_in_a_step(recipe_of(data(2) + zero(3), all, {"precision.compute=bf16"})).at(queue);
}

// Of two ranks each sends half of what comes together or is summed.
constexpr std::uint64_t in_codes(std::int64_t elements, std::int64_t bits) {
  return static_cast<std::uint64_t>(elements / 2 / code_block * code_block_bytes(bits));
}

TEST(CodedBytes, OfAGatherAreOneAndAScaleForEachBlock) {
  const std::int64_t tables = 2 * vocab * hidden;
  const std::uint64_t whole = sent_by("dp.gather", {}), coded = sent_by("dp.gather", {gather});
  // The last layer's parameters are there still as backward begins, and so are the head's.
  const std::int64_t gathered = tables + (2 * layers - 1) * weights;
  EXPECT_EQ(whole - coded, static_cast<std::uint64_t>(gathered / 2 * 2) - in_codes(gathered, 8));
  EXPECT_EQ(sent_by("dp.gather", {gather_fp8}), coded);
}

TEST(CodedBytes, OfASumAreOneOrHalfAByteAndAScaleForEachBlock) {
  const std::int64_t summed = 2 * vocab * hidden + layers * weights;
  const std::uint64_t whole = sent_by("dp.reduce", {});
  EXPECT_EQ(whole - sent_by("dp.reduce", {sum8}),
            static_cast<std::uint64_t>(summed / 2 * 4) - in_codes(summed, 8));
  EXPECT_EQ(whole - sent_by("dp.reduce", {sum4}),
            static_cast<std::uint64_t>(summed / 2 * 4) - in_codes(summed, 4));
}

// Two hosts of two ranks each sum what has come together within them, a rank's half, in fp32: with codes and
// without, of an all-reduce between two as much as there is.
TEST(CodedBytes, BetweenHostsAreThoseOfARanksPart) {
  const auto sent = [](const std::string& sum, int stage) {
    return sent_in_a_step(recipe_of(hosts + zero(stage) + "axis = 'gpus'\n",
                                    {"batch.micro=2", "model.vocab=64", sum}, {}))
        .at("hosts.reduce");
  };
  constexpr std::int64_t in_blocks = 64 * hidden + layers * (4 * hidden * hidden + 2 * hidden * ffn);
  for (const int stage : {1, 2, 3}) {
    const std::uint64_t coded = sent(sum8, stage), whole = sent("precision.reduce=state", stage);
    EXPECT_GE(coded, in_blocks / 2 * 4);
    EXPECT_LT(coded, in_blocks / 2 * 4 * 11 / 10);                                       // gains and biases
    EXPECT_NEAR(static_cast<double>(whole), static_cast<double>(coded), 4096) << stage;  // what pads buckets
  }
}

// ---------------------------------------------------------------- what cannot be

TEST(CodedRefusals, AreNoneOfWhatHasLongRunsOnEachRank) {
  EXPECT_EQ(refusal(recipe_of(dp2tp2 + zero(3), with_wide({gather}))), "");
}

TEST(CodedRefusals, VerifySaysWhatOneRankCannotDoAlike) {
  expect_refused(refusal(recipe_of(data(2) + zero(1), {sum8}), true),
                 "a rank adds up several microbatches before it rounds");
  EXPECT_EQ(refusal(recipe_of(data(2) + zero(1), {sum8, "batch.micro=4"}), true), "");
  // A head's gradient comes with forward: where forwards run ahead, its sum has several microbatches'.
  const auto pipeline = [](const std::string& schedule, const std::string& tied) {
    return recipe_of(dp2pp2_of(schedule) + zero(3),
                     {sum8, "model.layers=4", "model.tied=" + tied, "optimizer.clip=0"});
  };
  expect_refused(refusal(pipeline("gpipe", "false"), true),
                 "a rank adds up several microbatches before it rounds");
  expect_refused(refusal(pipeline("zb-v", "true"), true),
                 "a rank adds up several microbatches before it rounds");
  for (const char* schedule : {"1f1b", "zb-v"})
    EXPECT_TRUE(verify_layout(pipeline(schedule, "false"), plugins().places(), 2).equal()) << schedule;
  const std::string shared =
      "[mesh]\ndp = 2\ncp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'context'\n"
      "axis = 'cp'\n" +
      zero(2);
  expect_refused(refusal(recipe_of(shared, {sum8}), true),
                 "ranks that sum a gradient are not those that share out the batch");
  // An expert that a rank has to itself is neither sent nor gathered.
  const std::string experts = data(2) + "[[strategy]]\nplugin = 'experts'\naxis = 'dp'\n" + zero(3);
  const std::vector<std::string> model = {"model.plugin=llama", "model.kv_heads=2", "model.family=mixtral",
                                          "model.experts=4",    "model.choices=2",  "model.expert_ffn=64",
                                          "model.tied=false",   "batch.micro=4"};
  expect_refused(refusal(recipe_of(experts, with(model, {gather})), true), "precision.gather: 'experts.");
  expect_refused(refusal(recipe_of(experts, with(model, {sum8})), true),
                 "precision.reduce: the gradient of 'experts.");
}

}  // namespace
}  // namespace prun::test::coded_test
