// Products in fp8: ranks round in the places where one rank does, or the layout is refused.
#include <gtest/gtest.h>

#include "estimate/costs.hpp"
#include "inspect/fp8.hpp"
#include "inspect/report.hpp"
#include "inspect/verify.hpp"
#include "support/coded_runs.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::fp8_test {
namespace {

struct Layout {
  const char* name;
  std::string text;  // mesh and strategies
  std::vector<std::string> sets;
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << l.name; }
};

// Widths of which two ranks have whole blocks each.
const std::vector<std::string> sizes = {"model.hidden=256", "model.heads=2",          "model.ffn=256",
                                        "model.seq=128",    "batch.micro=1",          "batch.global=4",
                                        "optimizer.clip=1", "precision.compute=fp64", "precision.state=fp64",
                                        "device.pin=false", "device.threads=1"};

Recipe recipe_without(const std::vector<std::string>& sets) {
  std::vector<std::string> all = sizes;
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all);
}

Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets) {
  return recipe_in_fp8(text, {sizes, sets});
}

std::string axis(const std::string& name, const std::string& plugin, const std::string& options = "") {
  return "[mesh]\n" + name + " = 2\n[[strategy]]\nplugin = '" + plugin + "'\n" + options;
}

class Fp8 : public testing::TestWithParam<Layout> {};

TEST_P(Fp8, LayoutsEqualOneRank) {
  const LayoutVerdict verdict =
      verify_layout(recipe_of(GetParam().text, GetParam().sets), plugins().places(), 3);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

const std::string zero3 = "[[strategy]]\nplugin = 'zero'\nstage = 3\n";

const std::string saved = "fp8.activations=true", step_codes = "fp8.cache_weights=true";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Fp8,
    testing::Values(
        Layout{"data", axis("dp", "data"), {}}, Layout{"zero3", axis("dp", "data") + zero3, {}},
        Layout{"tensor", axis("tp", "tensor"), {}},
        Layout{"tensor_sequence", axis("tp", "tensor", "sequence = true\n"), {}},
        Layout{"llama", axis("tp", "tensor"), {"model.plugin=llama", "model.kv_heads=2"}},
        Layout{"context", axis("cp", "context"), {"model.seq=512", "batch.global=2"}},
        Layout{"pipeline", axis("pp", "pipeline", "schedule = 'zb-h1'\n"), {}},
        Layout{"ends_in_compute",
               axis("pp", "pipeline", "schedule = 'zb-h1'\n"),
               {"model.layers=4", "fp8.first_in_compute=1", "fp8.last_in_compute=1"}},
        Layout{"recompute", axis("dp", "data") + "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n", {}},
        Layout{"offload",
               axis("dp", "data") + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = "
                                    "'host'\n",
               {}},
        Layout{"saved_zero3", axis("dp", "data") + zero3, {saved}},
        Layout{"saved_tensor", axis("tp", "tensor"), {saved}},
        Layout{"saved_tensor_sequence", axis("tp", "tensor", "sequence = true\n"), {saved}},
        Layout{"saved_llama", axis("tp", "tensor"), {"model.plugin=llama", "model.kv_heads=2", saved}},
        Layout{"saved_context", axis("cp", "context"), {"model.seq=512", "batch.global=2", saved}},
        Layout{"saved_pipeline", axis("pp", "pipeline", "schedule = 'zb-h1'\n"), {saved}},
        Layout{"saved_recompute",
               axis("dp", "data") + "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = "
                                    "['layernorm']\n",
               {saved}},
        Layout{"saved_offload",
               axis("dp", "data") + "[[strategy]]\nplugin = 'offload'\nactivations = 'host'\n",
               {saved}},
        Layout{"kept", axis("dp", "data"), {step_codes}},
        Layout{"kept_zero2", axis("dp", "data") + "[[strategy]]\nplugin = 'zero'\nstage = 2\n", {step_codes}},
        Layout{"kept_tensor", axis("tp", "tensor"), {step_codes, saved}},
        Layout{"kept_tensor_sequence", axis("tp", "tensor", "sequence = true\n"), {step_codes}},
        Layout{"kept_llama", axis("tp", "tensor"), {"model.plugin=llama", "model.kv_heads=2", step_codes}},
        Layout{"kept_context", axis("cp", "context"), {"model.seq=512", "batch.global=2", step_codes}},
        Layout{"kept_pipeline", axis("pp", "pipeline", "schedule = 'zb-h1'\n"), {step_codes}},
        Layout{"kept_recompute",
               axis("dp", "data") + "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
               {step_codes}},
        Layout{"kept_offload",
               axis("dp", "data") + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\n",
               {step_codes}},
        Layout{"adapters", axis("dp", "data") + "[[strategy]]\nplugin = 'lora'\nrank = 4\n", {}}),
    [](const auto& layout) { return std::string(layout.param.name); });

TEST(Fp8Run, LossIsNearTheOneWithout) {
  const auto loss = [](const Recipe& recipe) { return run_ranks(recipe, 3).front()[2]; };
  const double exact = loss(recipe_without({})), rounded = loss(recipe_of("", {}));
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.01 * exact);
}

void expect_resumes(const std::string& how) {
  const std::string out = (temporary_folder() / ("fp8-resume-" + how)).string();
  const std::vector<std::string> sets = {"precision.compute=bf16", "precision.state=fp32", "run.out=" + out,
                                         "fp8.activations=" + how};
  const Recipe recipe = recipe_of(axis("dp", "data"), sets);
  std::vector<double> through, resumed;
  const auto steps = [](const Recipe& of, int before, int after, std::vector<double>* kept) {
    run_local_ranks(of, plugins().places(), [&](Trainer& trainer) {
      train_steps(trainer, before);
      const std::vector<double> losses = train_steps(trainer, after);
      if (kept == nullptr)
        trainer.save();
      else if (trainer.assembly().rank() == 0)
        *kept = losses;
    });
  };
  steps(recipe, 2, 2, &through);
  steps(recipe, 2, 0, nullptr);
  steps(recipe.with("run.resume", out), 0, 2, &resumed);
  EXPECT_EQ(resumed, through);
}

TEST(Fp8Run, ResumesWithTheSameBits) {
  expect_resumes("false");
  expect_resumes("true");
}

// Of the products of a block, all but adapters'.
TEST(Fp8Run, ThePlanSaysWhichShareOfProducts) {
  const auto share = [](const std::string& text) {
    return share_in_fp8(Assembly(recipe_of(text, {}), plugins()).program());
  };
  EXPECT_EQ(share(""), 1);
  const double adapted = share("[[strategy]]\nplugin = 'lora'\nrank = 4\n");
  EXPECT_GT(adapted, 0.9);
  EXPECT_LT(adapted, 1);
}

TEST(Fp8Run, FirstAndLastLayersStayInCompute) {
  const std::vector<std::string> ends = {"model.layers=4", "fp8.first_in_compute=1", "fp8.last_in_compute=2"};
  const auto assembly = [](const std::vector<std::string>& sets) {
    return Assembly(recipe_of("", sets), plugins());
  };
  EXPECT_EQ(share_in_fp8(assembly(ends).program()), 0.25);
  EXPECT_EQ(assembly({"model.layers=4"}).plan().layout.bytes_in_memory(),
            assembly(ends).plan().layout.bytes_in_memory());
  const auto loss = [](std::vector<std::string> sets) {
    sets.emplace_back("model.layers=4");
    return run_ranks(recipe_of("", sets), 2).front()[1];
  };
  const double some = loss({ends[1], ends[2]});
  EXPECT_NE(some, loss({}));
  EXPECT_NE(some, run_ranks(recipe_without({"model.layers=4"}), 2).front()[1]);
}

// Of a block of GPT: what both norms and the gelu give. What attention gives is read by its gradient too.
TEST(Fp8Run, SavedCodesChangeNoBit) {
  const std::vector<std::string> bf16 = {"precision.compute=bf16", "precision.state=fp32", "batch.micro=2",
                                         "model.ffn=512"};
  const auto with = [&](const std::string& how) {
    std::vector<std::string> sets = bf16;
    sets.push_back("fp8.activations=" + how);
    return sets;
  };
  for (const std::string& layout : {std::string(), axis("tp", "tensor"), axis("pp", "pipeline")})
    EXPECT_EQ(run_ranks(recipe_of(layout, with("true")), 3), run_ranks(recipe_of(layout, with("false")), 3))
        << layout;
}

std::int64_t slot_bytes(const Assembly& assembly) {
  return assembly.plan().layout.memory.bytes[static_cast<std::size_t>(Region::slot)];
}

TEST(Fp8Run, SavedCodesArePlannedToTheByte) {
  const auto assembly = [](const std::string& text, const std::string& how) {
    return Assembly(recipe_of(text, {"precision.compute=bf16", "precision.state=fp32", "batch.micro=2",
                                     "model.ffn=512", "fp8.activations=" + how}),
                    plugins());
  };
  const Assembly codes = assembly("", "true"), numbers = assembly("", "false");
  SavedInCodes all;
  std::int64_t layers = 0;
  for (Id id = 0; id < codes.program().segment_count(); ++id)
    if (const SavedInCodes of = saved_in_codes(codes.program(), id); of.values > 0) {
      all = of;
      layers = codes.program().segment(id).repeat;
    }
  constexpr std::int64_t rows = 2 * 128, widths = 256 + 256 + 512;
  EXPECT_EQ(all.values, 3);
  EXPECT_EQ(all.bytes_before, 2 * rows * widths);
  EXPECT_EQ(all.bytes, rows * (widths + widths / 128));
  EXPECT_EQ(slot_bytes(numbers) - slot_bytes(codes), layers * (all.bytes_before - all.bytes));
  EXPECT_NE(codes.fingerprint(), numbers.fingerprint());
  const std::string said = "saved       quantized: 3 of block (258.00 KiB a layer instead of 512.00 KiB)";
  EXPECT_NE(plan_text(codes, {}).find(said), std::string::npos) << plan_text(codes, {});
  const std::string adapters = "[[strategy]]\nplugin = 'lora'\nrank = 4\n";
  EXPECT_EQ(slot_bytes(assembly(adapters, "true")), slot_bytes(assembly(adapters, "false")));
  const std::string full = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n";
  EXPECT_EQ(assembly(full, "true").fingerprint(), assembly(full, "false").fingerprint());
}

TEST(Fp8Run, KeptWeightCodesChangeNoBit) {
  const auto with = [&](const std::string& text, const std::string& how) {
    return run_ranks(recipe_of(text, {"precision.compute=bf16", "precision.state=fp32", "model.ffn=512",
                                      "fp8.cache_weights=" + how}),
                     3);
  };
  for (const std::string& layout : {std::string(), axis("tp", "tensor"), axis("pp", "pipeline"),
                                    axis("dp", "data") + "[[strategy]]\nplugin = 'zero'\nstage = 1\n",
                                    std::string("[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n")})
    EXPECT_EQ(with(layout, "true"), with(layout, "false")) << layout;
}

std::int64_t region_bytes(const Assembly& assembly, Region region) {
  return assembly.plan().layout.memory.bytes[static_cast<std::size_t>(region)];
}

// Both orientations of each weight: an element has a byte in either, and a 128th of one for scales.
TEST(Fp8Run, KeptWeightCodesArePlannedToTheByteAndMadeOnceAStep) {
  const auto assembly = [](const std::string& how) {
    return Assembly(recipe_of("", {"precision.compute=bf16", "precision.state=fp32", "model.ffn=512",
                                   "fp8.cache_weights=" + how}),
                    plugins());
  };
  const Assembly codes = assembly("true"), without = assembly("false");
  constexpr std::int64_t hidden = 256, ffn = 512,
                         elements = 3 * hidden * hidden + hidden * hidden + 2 * hidden * ffn;
  constexpr std::int64_t a_layer = 2 * (elements + elements / 128);
  EXPECT_EQ(region_bytes(without, Region::gathered), 0);
  EXPECT_EQ(region_bytes(codes, Region::gathered), 2 * a_layer);
  std::int64_t gathered = 0;
  for (const Call& call : codes.plan().calls)
    gathered += codes.plan().functions[call.function].kind == FunctionKind::gather;
  EXPECT_EQ(gathered, 2);  // of two layers, for four microbatches
  EXPECT_NE(plan_text(codes, {}).find("weights     as codes for a step: 8 of 8 products of block ("),
            std::string::npos)
      << plan_text(codes, {});
}

// Ranks share out the second dimension of SwiGLU's weight, and groups of heads.
TEST(Fp8Run, RanksKeepCodesOfTheirPartsOfWeights) {
  for (const char* model : {"gpt", "llama"}) {
    const Assembly assembly(
        recipe_of(axis("tp", "tensor"), {std::string("model.plugin=") + model, step_codes}), plugins());
    WeightCodes all;
    for (Id id = 0; id < assembly.program().segment_count(); ++id)
      if (const WeightCodes of = weight_codes(assembly.program(), id); of.products > 0) all = of;
    EXPECT_EQ(all.products, 8) << model;
    EXPECT_EQ(all.of_codes, 8) << model;
    EXPECT_EQ(region_bytes(assembly, Region::gathered), 2 * all.bytes) << model;
  }
}

}  // namespace
}  // namespace prun::test::fp8_test
