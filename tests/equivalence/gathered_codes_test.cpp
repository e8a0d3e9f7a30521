// Weights that ranks keep in parts come together as the codes that products in fp8 multiply: bits are those
// of codes made from whole weights, wherever a border of a part cuts a square.
#include "inspect/report.hpp"
#include "prun/fp8_squares.hpp"
#include "support/coded_runs.hpp"

namespace prun::test::gathered_codes_test {
namespace {

const std::string zero3 = "[[strategy]]\nplugin = 'zero'\nstage = 3\n", step_codes = "fp8.cache_weights=true";
const std::vector<std::string> trained_in = {"precision.compute=bf16", "precision.state=fp32"};

std::string data(int ranks) {
  return "[mesh]\ndp = " + std::to_string(ranks) + "\n[[strategy]]\nplugin = 'data'\n";
}

Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets,
                 const std::vector<std::string>& more = exact_and_poisoned) {
  return recipe_in_fp8(text, {{"model.seq=128", "batch.micro=1", "batch.global=12"}, more, sets});
}

std::vector<std::string> with_codes(std::vector<std::string> sets) {
  sets.push_back(step_codes);
  return sets;
}

// ---------------------------------------------------------------- numbers

class GatheredCodes : public testing::TestWithParam<CodedLayout> {};

TEST_P(GatheredCodes, EqualOneRank) {
  expect_equals_one_rank(recipe_of(GetParam().text, with_codes(GetParam().sets)), 2);
}

const std::string hosts = hosts_of(2, 2),
                  both = "[[strategy]]\nplugin = 'zero'\nstage = 3\naxis = ['hosts', 'gpus']\n",
                  copied = both + "secondary = ['gpus']\n",
                  recompute = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  adapters = "[[strategy]]\nplugin = 'lora'\nrank = 4\n",
                  frozen = "[[optimizer.group]]\nmatch = 'block.up*'\nfrozen = true\n",
                  others = "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n";
const std::vector<std::string> llama = {"model.plugin=llama", "model.kv_heads=2"};

INSTANTIATE_TEST_SUITE_P(
    Layouts, GatheredCodes,
    testing::Values(CodedLayout{"two", data(2) + zero3, {}}, CodedLayout{"three", data(3) + zero3, {}},
                    CodedLayout{"llama", data(3) + zero3, llama},
                    CodedLayout{"uneven_blocks", data(3) + zero3, {"model.ffn=400"}},
                    CodedLayout{"tensor", dp2tp2 + zero3, llama},
                    CodedLayout{"tensor_of_gpt", dp2tp2 + zero3, {}},
                    CodedLayout{"pipeline", dp2pp2 + zero3, {"model.layers=4"}},
                    CodedLayout{"recomputed", data(2) + recompute + zero3, {}},
                    CodedLayout{"saved_in_codes", data(2) + zero3, {"fp8.activations=true"}},
                    CodedLayout{"summed_once", data(2) + zero3 + "reduce = 'step'\n", {}},
                    CodedLayout{"sums_in_codes", data(2) + zero3, {"precision.reduce=int8"}},
                    CodedLayout{"frozen", data(2) + zero3 + frozen, {}},
                    CodedLayout{"adapters", data(2) + adapters + zero3, {}},
                    CodedLayout{"muon", data(2) + zero3 + others, {"optimizer.plugin=muon"}},
                    CodedLayout{"side_by_side", data(2) + zero3, {"batch.interleave=2"}},
                    CodedLayout{"vertically", data(2) + zero3, {"batch.order=breadth_first"}},
                    CodedLayout{"optimizer_on_the_host",
                                data(2) + zero3 + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\n",
                                {}},
                    CodedLayout{"one_by_one", data(2) + zero3, {"run.bucket_bytes=0B", "model.layers=4"}},
                    CodedLayout{"over_two_axes", hosts + both, {}}, CodedLayout{"copied", hosts + copied, {}},
                    CodedLayout{
                        "copied_one_by_one", hosts + copied, {"run.bucket_bytes=0B", "model.layers=4"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// On a device that copies beside what it computes, too.
TEST(GatheredCodesRun, HaveTheBitsOfWeightsThatComeAsTheyAre) {
  for (const std::string& text : {data(2) + zero3, data(2) + recompute + zero3})
    for (const std::vector<std::string>& on :
         {std::vector<std::string>{},
          {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20"}})
      EXPECT_EQ(run_ranks(recipe_of(text, with_codes(on), trained_in), 3),
                run_ranks(recipe_of(text, on, trained_in), 3))
          << text << testing::PrintToString(on);
}

// Between hosts, too, codes are what travels.
TEST(GatheredCodesRun, HaveTheBitsThatTheyHaveWithoutACopy) {
  for (const std::vector<std::string>& on :
       {std::vector<std::string>{},
        {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20"}})
    EXPECT_EQ(run_ranks(recipe_of(hosts + copied, with_codes(on), trained_in), 3),
              run_ranks(recipe_of(hosts + both, with_codes(on), trained_in), 3))
        << testing::PrintToString(on);
}

// Codes are made anew from what is there, then steps go on as if nothing had been.
TEST(GatheredCodesRun, EvaluateBetweenSteps) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const auto losses = [&](std::vector<std::string> sets, bool evaluates) {
    sets.insert(sets.end(), {"eval.every=1", "eval.batches=1"});
    std::vector<double> all;
    run_local_ranks(recipe_of(data(2) + zero3 + validation, sets, trained_in), plugins().places(),
                    [&](Trainer& trainer) {
                      for (int step = 0; step < 3; ++step) {
                        const double evaluated = evaluates ? trainer.evaluate().whole.loss : 0;
                        const double loss = trainer.step().loss;
                        if (trainer.assembly().rank() == 0) all.insert(all.end(), {evaluated, loss});
                      }
                    });
    return all;
  };
  const std::vector<double> with = losses({step_codes}, true), alone = losses({step_codes}, false);
  EXPECT_EQ(with, losses({}, true));
  for (std::size_t i = 1; i < with.size(); i += 2) EXPECT_EQ(with[i], alone[i]) << i;
}

TEST(GatheredCodesRun, CheckpointsGoOnWithAndWithout) {
  const std::string out = (temporary_folder() / "gathered-codes").string();
  const auto recipe = [&](std::vector<std::string> sets, const std::string& key) {
    sets.push_back(key + out);
    return recipe_of(data(2) + zero3, sets, trained_in);
  };
  Numbers through = trained(recipe({step_codes}, "run.out="), 4);
  trained(recipe({step_codes}, "run.out="), 2, true);
  for (std::vector<double>& numbers : through) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(recipe({step_codes}, "run.resume="), 2), through);
  EXPECT_EQ(trained(recipe({}, "run.resume="), 2), through);
}

// ---------------------------------------------------------------- bytes

constexpr std::int64_t hidden = 256, ffn = 512, layers = 3,
                       weights = 3 * hidden * hidden + hidden * hidden + 2 * hidden * ffn;

const std::vector<std::string> sizes = {"model.ffn=512", "model.layers=3", "run.bucket_bytes=0B",
                                        "model.tied=false"};

// Each of two ranks sends half of what comes together: 129 bytes of 128 numbers instead of 256. What ranks
// tell each other of squares is small, so each sends all of it.
TEST(GatheredCodesBytes, AreOneAndAHundredAndTwentyEighthOfANumber) {
  const auto sent = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all = sizes;
    all.insert(all.end(), sets.begin(), sets.end());
    return static_cast<std::int64_t>(
        sent_in_a_step(recipe_of(data(2) + zero3, all, trained_in)).at("dp.gather"));
  };
  const std::int64_t microbatches = 6, gathered = (2 * layers - 1) * microbatches - (microbatches - 1);
  const std::int64_t spared = gathered * (2 * weights - weights / 128 * 129) / 2,
                     peaks = layers * weights / 16384 * 4;
  EXPECT_EQ(sent({}) - sent({step_codes}), spared - peaks);
}

// The copy comes once a step: a rank sends its part of it to the other host.
TEST(GatheredCodesBytes, BetweenHostsAreThoseOfTheCopyInCodes) {
  const auto sent = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all = sizes;
    all.insert(all.end(), sets.begin(), sets.end());
    return static_cast<std::int64_t>(
        sent_in_a_step(recipe_of(hosts + copied, all, trained_in)).at("hosts.gather"));
  };
  EXPECT_EQ(sent({}) - sent({step_codes}), layers * (2 * weights - weights / 128 * 129) / 4);
}

std::int64_t region_bytes(const Assembly& assembly, Region region) {
  return assembly.plan().layout.memory.bytes[static_cast<std::size_t>(region)];
}

TEST(GatheredCodesBytes, OfMemoryAreThoseOfTheLayersInUseAndOfARanksPart) {
  const auto assembly = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all = sizes;
    all.insert(all.end(), sets.begin(), sets.end());
    return Assembly(recipe_of(data(2) + zero3, all, trained_in), plugins());
  };
  const Assembly codes = assembly({step_codes}), numbers = assembly({});
  const std::int64_t kept = region_bytes(codes, Region::parameter) - region_bytes(numbers, Region::parameter),
                     own = layers * (weights / 128 * 129 / 2 + weights / 16384 * 4);
  EXPECT_GE(kept, own);
  EXPECT_LT(kept, own + layers * 256);  // each begins at a multiple of 256 bytes
  EXPECT_EQ(region_bytes(numbers, Region::gathered) - region_bytes(codes, Region::gathered),
            2 * (2 * weights - weights / 128 * 129));
  const std::string said =
      "weights     as codes for a step: 8 of 8 products of block (516.00 KiB a layer, as ranks gather them)";
  EXPECT_NE(plan_text(codes, {}).find(said), std::string::npos) << plan_text(codes, {});
}

}  // namespace
}  // namespace prun::test::gathered_codes_test
