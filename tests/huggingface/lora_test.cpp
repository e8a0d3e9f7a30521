// Adapters beside frozen weights: the losses of PEFT, its folders in and out, checkpoints that hold the
// adapters alone, and what frozen weights take of memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hugging_face/hugging_face.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::lora_test {
namespace {

namespace fs = std::filesystem;

fs::path peft(const std::string& model) { return fs::path(PRUN_TEST_FIXTURES) / "lora" / model; }

std::vector<double> expected(const std::string& model, const char* what) {
  return numbers_of<double>(SafetensorsFile(peft(model) / "expected.safetensors"), what);
}

// As make_lora.py has them.
std::string adapters_of(const std::string& model) {
  const std::string lora = "[[strategy]]\nplugin = 'lora'\n";
  if (model == "qwen2") return lora + "rank = 2\nalpha = 3\nrslora = true\ntargets = ['v_proj', 'up_proj']\n";
  return lora + "rank = 4\nalpha = " + (model == "llama" ? "8" : "16") + "\n";
}

Recipe lora_recipe(const std::string& model, const std::vector<std::string>& sets = {},
                   const std::string& layout = {}) {
  return recipe_from(hugging_face(model), model, with({"model.adapter=" + peft(model).string()}, sets),
                     adapters_of(model) + layout);
}

const Value& parameter_of(const Assembly& assembly, const std::string& end) {
  for (const Id id : assembly.program().parameters())
    if (const Value& value = assembly.program().value(id); value.name.ends_with(end)) return value;
  throw_error(ErrorCode::internal, "no parameter ends with ", end);
}

// Without PEFT's folder.
Recipe fresh_recipe(const std::string& model, const std::vector<std::string>& sets = {},
                    const std::string& layout = {}) {
  return recipe_from(hugging_face(model), model, sets, adapters_of(model) + layout);
}

double first_loss(const Recipe& recipe) {
  const Assembly assembly(recipe, plugins());
  Trainer trainer(assembly, plugins());
  return trainer.step().loss;
}

void expect_refusal(const Recipe& recipe, const std::string& part) {
  try {
    const Assembly assembly(recipe, plugins());
    const Trainer trainer(assembly, plugins());
    ADD_FAILURE() << "accepted, wanted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// As LoRA+ has it: what is added to a weight learns faster than what reads the input.
TEST(Lora, GroupsTakeAdapters) {
  const std::string of_up =
      "[[optimizer.group]]\nmatch = '*.lora_B'\nlr_scale = 16\nweight_decay = 0\n"
      "[[optimizer.group]]\nmatch = 'block.*'\nlr_scale = 0.5\n";
  const Assembly assembly(fresh_recipe("llama", {}, of_up), plugins());
  const Value &down = parameter_of(assembly, ".lora_A"), &up = parameter_of(assembly, ".lora_B");
  EXPECT_EQ(up.lr_scale, 16);
  EXPECT_FALSE(up.decay);
  EXPECT_EQ(down.lr_scale, 0.5);
  EXPECT_TRUE(down.decay);
  EXPECT_FALSE(up.frozen || down.frozen);
  const Recipe recipe = fresh_recipe("llama", {}, "[[optimizer.group]]\nmatch = '*.lora_C'\n");
  expect_refusal(recipe, "no parameter's name matches '*.lora_C'");
}

// The rates of the group are those of its updates.
TEST(Lora, AGroupsRateMovesItsAdaptersAlone) {
  const auto trained = [](const std::string& groups) {
    const Assembly assembly(fresh_recipe("llama", {}, groups), plugins());
    Trainer trainer(assembly, plugins());
    const std::vector<double> before = parameters_of(trainer);
    for (int step = 0; step < 2; ++step) trainer.step();
    std::vector<double> moved = parameters_of(trainer);
    std::size_t count = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) count += moved[i] != before[i] ? 1 : 0;
    return count;
  };
  const std::size_t all = trained(""),
                    down_alone = trained("[[optimizer.group]]\nmatch = '*.lora_B'\nlr_scale = 0\n");
  EXPECT_GT(all, 0u);
  EXPECT_LT(down_alone, all);
}

std::map<std::string, std::vector<std::byte>> tensors_of(const fs::path& file) {
  std::map<std::string, std::vector<std::byte>> tensors;
  const SafetensorsFile opened(file);
  for (const SafetensorsEntry& entry : opened.entries())
    tensors[entry.name + shape_text(entry.shape)] = {opened.bytes(entry).begin(), opened.bytes(entry).end()};
  return tensors;
}

class Lora : public testing::TestWithParam<std::string> {
 protected:
  const TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Peft, Lora, testing::Values("llama", "qwen2", "gpt2"),
                         [](const auto& model) { return model.param; });

TEST_P(Lora, LossesAreThoseOfPeftAndSoAreTheMergedWeights) {
  const std::vector<double> theirs = expected(GetParam(), "losses");
  const Assembly assembly(lora_recipe(GetParam(), {"run.out=" + (folder_ / "run")}), plugins());
  Trainer trainer(assembly, plugins());
  const std::vector<double> losses = train_steps(trainer, static_cast<int>(theirs.size()));
  for (std::size_t i = 0; i < theirs.size(); ++i)
    EXPECT_NEAR(losses[i] / theirs[i], 1.0, 2e-5) << "step " << i + 1;
  const fs::path saved = trainer.save();
  export_checkpoint(plugins(), {saved, folder_ / "merged", {}, 1 << 30, {}});
  EXPECT_NEAR(first_loss(recipe_from(folder_ / "merged", GetParam())) / expected(GetParam(), "merged").at(0),
              1.0, 2e-5);
  // As adapters they go out, and come in again.
  export_adapter(plugins(), {saved, folder_ / "adapter", {}, 1 << 30, {}});
  const double again = first_loss(
      lora_recipe(GetParam(), {"model.adapter=" + (folder_ / "adapter"), "run.out=" + (folder_ / "again")}));
  EXPECT_NEAR(again / expected(GetParam(), "merged").at(0), 1.0, 2e-5);
}

TEST_P(Lora, AFolderOfPeftComesBackByteForByte) {
  const Assembly assembly(lora_recipe(GetParam(), {"run.out=" + (folder_ / "run")}), plugins());
  Trainer trainer(assembly, plugins());
  export_adapter(plugins(), {trainer.save(), folder_ / "back", {}, 1 << 30, {}});
  EXPECT_EQ(tensors_of(folder_ / "back/adapter_model.safetensors"),
            tensors_of(peft(GetParam()) / "adapter_model.safetensors"));
}

TEST_P(Lora, TrainingBeginsWithTheModelAsItWas) {
  EXPECT_NEAR(first_loss(fresh_recipe(GetParam())) / expected_loss(GetParam()), 1.0, 1e-5);
}

// Each layout goes on from what another saved, and files hold adapters alone.
TEST_P(Lora, CheckpointsHoldAdaptersAloneAndGoOnInAnyLayout) {
  const std::string zero =
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n";
  const std::string tensor = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\n";
  const std::vector<std::string> sets = with({"precision.compute=fp32"}, on_cpu().sets);
  std::vector<double> whole, halves;
  run_local_ranks(lora_recipe(GetParam(), with(sets, {"run.out=" + (folder_ / "whole")})), plugins().places(),
                  [&](Trainer& trainer) { whole = train_steps(trainer, 6); });
  run_local_ranks(lora_recipe(GetParam(), with(sets, {"run.out=" + (folder_ / "run")}), zero),
                  plugins().places(), [&](Trainer& trainer) {
                    const std::vector<double> losses = train_steps(trainer, 3);
                    if (trainer.assembly().rank() == 0) halves = losses;
                    trainer.save();
                  });
  for (const auto& [name, bytes] : saved_in(folder_ / "run/step-00000003"))
    EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
  run_local_ranks(lora_recipe(GetParam(),
                              with(sets, {"run.resume=" + (folder_ / "run"), "run.fresh=false",
                                          "run.out=" + (folder_ / "more"), "model.adapter="}),
                              tensor),
                  plugins().places(), [&](Trainer& trainer) {
                    const std::vector<double> losses = train_steps(trainer, 3);
                    if (trainer.assembly().rank() == 0)
                      halves.insert(halves.end(), losses.begin(), losses.end());
                  });
  ASSERT_EQ(halves.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(halves[i], whole[i], 2e-5) << "step " << i + 1;
}

// Trains adapters two steps and saves; they differ from their start then.
fs::path adapters_trained(const std::string& model, const std::string& lora, const TempFolder& folder) {
  const Assembly assembly(recipe_from(hugging_face(model), model, {"run.out=" + (folder / "run")}, lora),
                          plugins());
  Trainer trainer(assembly, plugins());
  train_steps(trainer, 2);
  return trainer.save();
}

// Layers of several kinds are several segments, whose adapters have one name with another number.
TEST(LoraFolders, LayersOfSeveralKindsGoOutAndComeIn) {
  const std::string named = "[[strategy]]\nplugin = 'lora'\nrank = 2\ntargets = ";
  for (const auto& [model, targets, one] :
       {std::tuple("gemma3", "['q_proj', 'v_proj']", "model.layers.3.self_attn.v_proj.lora_B.weight[16,2]"),
        std::tuple("deepseek3", "['q_a_proj', 'o_proj']", "model.layers.1.self_attn.o_proj.lora_A.weight"),
        std::tuple("dots1", "all-linear", "model.layers.0.mlp.down_proj.lora_A.weight"),
        std::tuple("qwen2_window", "all-linear", "model.layers.1.mlp.up_proj.lora_A.weight")}) {
    SCOPED_TRACE(model);
    const TempFolder folder;
    const std::string lora = named + (targets[0] == '[' ? targets : "'" + std::string(targets) + "'") + "\n";
    const fs::path saved = adapters_trained(model, lora, folder);
    export_adapter(plugins(), {saved, folder / "out", {}, 1 << 30, {}});
    const auto out = tensors_of(folder / "out/adapter_model.safetensors");
    EXPECT_TRUE(std::any_of(out.begin(), out.end(), [&](const auto& tensor) {
      return tensor.first.starts_with(std::string("base_model.model.") + one);
    })) << out.begin()->first;
    const Assembly assembly(
        recipe_from(hugging_face(model), model,
                    {"model.adapter=" + (folder / "out"), "run.out=" + (folder / "in")}, lora),
        plugins());
    Trainer trainer(assembly, plugins());
    export_adapter(plugins(), {trainer.save(), folder / "again", {}, 1 << 30, {}});
    EXPECT_EQ(tensors_of(folder / "again/adapter_model.safetensors"), out);
  }
}

// Phi-3's files have queries, keys and values in one tensor, and so its adapters: in the order of that
// tensor, up times down is what merging adds to it.
TEST(LoraFolders, FusedProjectionsHaveOneAdapter) {
  const TempFolder folder;
  const fs::path saved =
      adapters_trained("phi3", "[[strategy]]\nplugin = 'lora'\nrank = 2\nalpha = 4\n", folder);
  export_adapter(plugins(), {saved, folder / "adapter", {}, 1 << 30, {}});
  export_checkpoint(plugins(), {saved, folder / "merged", DType::f32, 1 << 30, {}});
  const SafetensorsFile adapter(folder / "adapter/adapter_model.safetensors"),
      merged(folder / "merged/model.safetensors"), before(hugging_face("phi3") / "model.safetensors");
  for (const char* module : {"model.layers.1.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj"}) {
    const std::string path = std::string("base_model.model.") + module;
    const auto down = numbers_of<float>(adapter, path + ".lora_A.weight"),
               up = numbers_of<float>(adapter, path + ".lora_B.weight"),
               was = numbers_of<float>(before, std::string(module) + ".weight"),
               is = numbers_of<float>(merged, std::string(module) + ".weight");
    const std::size_t width = down.size() / 2;
    ASSERT_EQ(up.size() / 2 * width, is.size());
    double moved = 0;
    for (std::size_t i = 0; i < is.size(); ++i) {
      const std::size_t row = i / width, column = i % width;
      const double added =
          2.0 * (double{up[2 * row]} * down[column] + double{up[2 * row + 1]} * down[width + column]);
      EXPECT_NEAR(is[i], was[i] + added, 1e-6) << module << " " << i;
      moved = std::max(moved, std::abs(added));
    }
    EXPECT_GT(moved, 1e-4) << module;
  }
}

// Ranks beyond the heads of keys and values share out the queries of each, and their adapters with them.
TEST(LoraLayouts, QueriesOfAHeadAreSharedOutWithTheirAdapters) {
  const std::vector<std::string> sets = with({"precision.compute=fp32"}, on_cpu().sets);
  for (const std::string targets : {"", "['q_proj']", "['v_proj', 'o_proj']"}) {
    const TempFolder folder;
    const auto losses = [&](const std::string& name, const std::string& layout) {
      const std::string lora = "[[strategy]]\nplugin = 'lora'\nrank = 4\n" +
                               (targets.empty() ? "" : "targets = " + targets + "\n");
      std::vector<double> mine;
      run_local_ranks(recipe_from(hugging_face("llama"), "llama", with(sets, {"run.out=" + (folder / name)}),
                                  lora + layout),
                      plugins().places(), [&](Trainer& trainer) {
                        const std::vector<double> all = train_steps(trainer, 4);
                        if (trainer.assembly().rank() == 0) mine = all;
                        trainer.save();
                      });
      return mine;
    };
    const std::vector<double> one = losses("one", ""),
                              four = losses("four", "[mesh]\ntp = 4\n[[strategy]]\nplugin = 'tensor'\n");
    ASSERT_EQ(one.size(), four.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 2e-5) << targets << i;
    const Tensors a = saved_in(folder / "one/step-00000004"), b = saved_in(folder / "four/step-00000004");
    for (const auto& [name, bytes] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      EXPECT_EQ(b.at(name).size(), bytes.size()) << name;
    }
    EXPECT_EQ(a.size(), b.size());
  }
}

TEST(LoraCheckpoint, AnotherBaseIsRefused) {
  const TempFolder folder;
  {
    const Assembly assembly(fresh_recipe("llama", {"run.out=" + (folder / "run")}), plugins());
    Trainer trainer(assembly, plugins());
    trainer.save();
  }
  HuggingFaceFolder other("llama");
  other.tensors.at("model.layers.1.mlp.up_proj.weight").bytes[401] ^= std::byte{1};
  const std::vector<std::string> resumed = {"run.resume=" + (folder / "run"), "run.fresh=false",
                                            "run.out=" + (folder / "more")};
  expect_refusal(recipe_from(other.write(), "llama", resumed, adapters_of("llama")),
                 "adapters were trained with others");
  EXPECT_NO_THROW(first_loss(fresh_recipe("llama", resumed)));
  std::vector<std::string> model;
  for (const auto& [key, text] : plugins().model_options("", hugging_face("llama")))
    model.push_back("model." + key + "=" + text);
  expect_refusal(recipe_from(folder / "run", "llama", model, adapters_of("llama")),
                 "it has adapters without the weights that they change");
}

std::int64_t bytes_of(const Memory& memory, Region region) {
  return memory.bytes[static_cast<std::size_t>(region)];
}

// Two bytes a parameter in bf16; a d-th of them each, where ranks keep them in parts. Nothing else of them.
TEST(LoraMemory, FrozenWeightsHaveNeitherGradientNorStateNorMaster) {
  const auto plan_of = [](const std::string& layout) {
    return Assembly(fresh_recipe("llama", with({"precision.compute=bf16"}, on_cpu().sets), layout),
                    plugins());
  };
  const Assembly one = plan_of("");
  std::int64_t frozen = 0, trained = 0;
  for (const Id id : one.program().parameters()) {
    const Value& value = one.program().value(id);
    const std::int64_t all = value.elements() * one.program().segment(value.segment).repeat;
    (value.frozen ? frozen : trained) += all;
    EXPECT_EQ(value.frozen, value.gradient == none) << value.name;
    EXPECT_EQ(value.frozen, value.master == none) << value.name;
    EXPECT_EQ(value.frozen, value.states.empty()) << value.name;
  }
  const std::int64_t padding = 256 * static_cast<std::int64_t>(2 * one.program().parameters().size());
  EXPECT_NEAR(static_cast<double>(bytes_of(one.plan().layout.memory, Region::parameter)),
              static_cast<double>(2 * (frozen + trained)), static_cast<double>(padding));
  EXPECT_NEAR(static_cast<double>(bytes_of(one.plan().layout.memory, Region::state)),
              static_cast<double>(12 * trained), static_cast<double>(3 * padding));
}

// Frozen weights have no master copy: they become bf16 as torch makes them, ties to even.
TEST(LoraMemory, FrozenWeightsAreRoundedToEven) {
  HuggingFaceFolder folder("llama");
  std::vector<std::byte>& bytes = folder.tensors.at("model.norm.weight").bytes;
  const std::vector<std::uint32_t> ties(32, 0x42608000);
  std::memcpy(bytes.data(), ties.data(), bytes.size());
  const Assembly assembly(
      recipe_from(folder.write(), "llama", {"precision.compute=bf16"}, adapters_of("llama")), plugins());
  Trainer trainer(assembly, plugins());
  const std::vector<double> parameters = parameters_of(trainer);
  const auto count = [&](std::uint32_t bits) {
    return std::count(parameters.begin(), parameters.end(), double{std::bit_cast<float>(bits)});
  };
  EXPECT_EQ(count(0x42600000), 32);
  EXPECT_EQ(count(0x42610000), 0);
}

// Fetched ahead of each use, where the adapters and all that belongs to them stay; not one bit differs.
TEST(LoraMemory, FrozenWeightsLieOnTheHostWhereverTheOptimizerIs) {
  const auto losses = [](const std::string& layout, bool on_host) {
    const Assembly assembly(fresh_recipe("llama", with({"run.bucket_bytes=0B"}, on_async().sets), layout),
                            plugins());
    for (const Id id : assembly.program().parameters()) {
      const Value& value = assembly.program().value(id);
      const bool elsewhere = value.place && *value.place == MemoryPlace{0, Space::pinned};
      EXPECT_EQ(elsewhere, on_host && value.frozen) << value.name;
    }
    Trainer trainer(assembly, plugins());
    return train_steps(trainer, 4);
  };
  const std::string offload = "[[strategy]]\nplugin = 'offload'\noptimizer = 'device'\n";
  EXPECT_EQ(losses(offload + "frozen = 'host'\n", true), losses("", false));
}

TEST(LoraRefusals, SayWhatToDo) {
  const auto lora = [](const std::string& options) {
    return recipe_from(hugging_face("llama"), "llama", {}, "[[strategy]]\nplugin = 'lora'\n" + options);
  };
  expect_refusal(
      lora("targets = 'query'\n"),
      "no weight of the model is called 'query'; those that can have an adapter are down_proj, gate_proj");
  expect_refusal(lora("targets = []\n"), "nothing would be trained");
  for (const char* target : {"gate", "w1", "embed_tokens"})
    expect_refusal(recipe_from(hugging_face("mixtral"), "mixtral", {},
                               std::string("[[strategy]]\nplugin = 'lora'\ntargets = '") + target + "'\n"),
                   std::string("'") + target + "' is an expert, a router, a table or a norm");
  const auto with_adapter = [&](const std::string& options) {
    return recipe_from(hugging_face("llama"), "llama", {"model.adapter=" + peft("llama").string()},
                       "[[strategy]]\nplugin = 'lora'\n" + options);
  };
  expect_refusal(with_adapter("rank = 8\n"), "has adapters of rank 4, the recipe's are of 8");
  expect_refusal(with_adapter("rank = 4\nalpha = 16\n"),
                 "multiplies what adapters add by 2, the recipe by 4");
  expect_refusal(with_adapter("rank = 4\nalpha = 8\ntargets = 'q_proj'\n"), "has no place in the model");
  expect_refusal(recipe_from(hugging_face("llama"), "llama", {"model.adapter=" + peft("llama").string()}),
                 "the recipe has no adapters");
}

}  // namespace
}  // namespace prun::test::lora_test
