// Training in fp16: layouts equal one rank, and losses are those of fp32; the scale of the loss changes
// nothing but what fp16 can hold, whatever makes gradients and whatever updates by them.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::fp16_test {
namespace {

using Sets = std::vector<std::string>;

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  sequence = tensor + "sequence = true\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\n", data2 = "[mesh]\ndp = 2\n" + data,
                  adapters = "[[strategy]]\nplugin = 'lora'\nrank = 2\ndropout = 0.1\n",
                  pipeline2 = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\n";

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

Recipe recipe_of(const std::string& layout, const Sets& sets) {
  Sets all = {"model.hidden=16",  "model.heads=4",  "model.ffn=32",     "model.seq=8",
              "batch.micro=1",    "batch.global=8", "device.threads=1", "device.pin=false",
              "optimizer.clip=1", "run.poison=true"};
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, layout);
}

std::vector<Layout> tried() {
  const std::string both = "[mesh]\ndp = 2\ntp = 2\n" + data + sequence;
  return {{"data", data2, {}},
          {"zero1", data2 + zero(1), {}},
          {"zero2", data2 + zero(2), {}},
          {"zero3", data2 + zero(3), {}},
          {"recompute", data2 + recomputed, {}},
          {"tensor", "[mesh]\ntp = 2\n" + tensor, {}},
          {"sequence", "[mesh]\ntp = 2\n" + sequence, {}},
          {"context", "[mesh]\ncp = 2\n[[strategy]]\nplugin = 'context'\n", {}},
          {"pipeline", pipeline2 + "schedule = '1f1b'\n", {}},
          {"zb_v", pipeline2 + "schedule = 'zb-v'\nchunks = 2\n", {"model.layers=4"}},
          {"zero3_tensor", both + zero(3), {}},
          {"offload", offloaded(), {}},
          {"offload_zero", data2 + zero(2) + offloaded(), {}},
          {"adapters", data2 + adapters, {}},
          {"adapters_zero3_tensor", both + zero(3) + adapters, {}},
          {"narrow_sums", data2 + zero(1), {"precision.reduce=bf16"}},
          {"narrow_moments", data2 + zero(1), {"precision.moments=bf16"}}};
}

class Fp16 : public testing::TestWithParam<std::tuple<const char*, Layout>> {
 protected:
  Recipe recipe(const Sets& sets) const {
    const auto& [model, layout] = GetParam();
    return recipe_of(layout.text, with(with({std::string("model.plugin=") + model}, layout.sets), sets));
  }
};

TEST_P(Fp16, EqualsOneRank) {
  const LayoutVerdict verdict =
      verify_layout(recipe({"precision.compute=fp16", "loss_scale.initial=1024"}), plugins().places(), 6);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_LT(verdict.loss.value, 2e-3) << to_text(verdict);
}

// In fp64 the scale is all that there is, and it is exact.
TEST_P(Fp16, TheScaleAloneIsThatOfOneRank) {
  if (std::get<1>(GetParam()).name == std::string("narrow_sums") ||
      std::get<1>(GetParam()).name == std::string("narrow_moments"))
    return;
  const Sets exact = {"precision.compute=fp64", "precision.state=fp64", "loss_scale.rule=deepspeed"};
  const LayoutVerdict verdict = verify_layout(recipe(exact), plugins().places(), 6);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Fp16,
                         testing::Combine(testing::Values("gpt", "llama"), testing::ValuesIn(tried())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param)) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// ---------------------------------------------------------------- one rank

std::vector<double> losses_of(const Sets& sets, int steps) {
  const Assembly assembly(recipe_of("", sets), plugins());
  Trainer trainer(assembly, plugins());
  return train_steps(trainer, steps);
}

TEST(Fp16Alone, TrainsAsFp32DoesAndCloserThanBf16) {
  for (const char* model : {"model.plugin=gpt", "model.plugin=llama"}) {
    const auto run = [&](const char* type) {
      return losses_of({model, std::string("precision.compute=") + type, "precision.master=fp32"}, 40);
    };
    const std::vector<double> wide = run("fp32"), fp16 = run("fp16"), bf16 = run("bf16");
    double apart = 0, apart_in_bf16 = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      apart += std::abs(fp16[i] - wide[i]);
      apart_in_bf16 += std::abs(bf16[i] - wide[i]);
    }
    EXPECT_LT(apart / 40, 2e-3) << model;
    EXPECT_LT(apart, apart_in_bf16) << model;
    EXPECT_LT(fp16.back(), fp16.front() - 0.2) << model;
  }
}

// Frozen weights are in fp16 and have no master; adapters have one.
TEST(Fp16Alone, AdaptersTrainAsInFp32AndCloserThanInBf16) {
  const auto run = [&](const char* type) {
    const Assembly assembly(
        recipe_of(adapters, {std::string("precision.compute=") + type, "precision.master=fp32"}), plugins());
    Trainer trainer(assembly, plugins());
    return train_steps(trainer, 40);
  };
  const std::vector<double> wide = run("fp32"), fp16 = run("fp16"), bf16 = run("bf16");
  double apart = 0, apart_in_bf16 = 0;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    apart += std::abs(fp16[i] - wide[i]);
    apart_in_bf16 += std::abs(bf16[i] - wide[i]);
  }
  EXPECT_LT(apart / 40, 2e-3);
  EXPECT_LT(apart, apart_in_bf16);
  EXPECT_LT(fp16.back(), fp16.front());
}

// What the loss is made of beside the head's, what the head has beside it, and updates of all kinds: a power
// of two is in all gradients, or something would be left of it.
TEST(Fp16Alone, AScaleIsInAllGradientsAndInNothingElse) {
  const Sets experts = {"model.plugin=llama",  "model.kv_heads=2",   "model.experts=8",     "model.choices=2",
                        "model.expert_ffn=12", "model.balance=0.02", "model.router_z=0.001"},
             biased = {"model.plugin=llama",     "model.kv_heads=2",   "model.experts=8",
                       "model.choices=2",        "model.expert_ffn=8", "model.router=sigmoid",
                       "model.router_bias=true", "model.balance=0.01"};
  const std::string regular = "[[strategy]]\nplugin = 'loss'\nz = 0.01\nsmoothing = 0.1\n";
  const std::string others = "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n";
  const std::pair<std::string, Sets> cases[] = {{"", experts},
                                                {"", biased},
                                                {regular, {}},
                                                {"", {"optimizer.plugin=sgd", "optimizer.momentum=0.9"}},
                                                {"", {"optimizer.plugin=lion"}},
                                                {others, {"optimizer.plugin=muon"}},
                                                {"", {"optimizer.plugin=adafactor"}},
                                                {"", {"optimizer.plugin=halving"}},
                                                {"[[strategy]]\nplugin = 'average'\ndecay = 0.9\n", {}},
                                                {"", {"data.mask_documents=true", "data.end_of_text=3"}}};
  for (const auto& [text, sets] : cases) {
    std::vector<StepResult> results[2];
    std::vector<double> parameters[2];
    for (const int scaled : {0, 1}) {
      const Sets more = scaled ? Sets{"loss_scale.rule=static", "loss_scale.initial=4096"} : Sets{};
      const Assembly assembly(recipe_of(text, with(sets, more)), plugins());
      Trainer trainer(assembly, plugins());
      trainer.run(5, [&](const StepResult& result) { results[scaled].push_back(result); });
      parameters[scaled] = parameters_of(trainer);
    }
    const std::string what = text + (sets.empty() ? "" : sets.front());
    EXPECT_EQ(parameters[0], parameters[1]) << what;
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(results[0][i].loss, results[1][i].loss) << what;
      EXPECT_EQ(results[0][i].grad_norm, results[1][i].grad_norm) << what;
      ASSERT_EQ(results[0][i].tallies.size(), results[1][i].tallies.size());
      for (std::size_t t = 0; t < results[0][i].tallies.size(); ++t)
        EXPECT_EQ(results[0][i].tallies[t].numbers, results[1][i].tallies[t].numbers) << what;
    }
  }
}

}  // namespace
}  // namespace prun::test::fp16_test
