// Modules of DeepSeek-V3's files that predict further tokens: they come in where a recipe asks for them, and
// go out under the same names.
#include <gtest/gtest.h>

#include "hugging_face/hugging_face.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::mtp_test {
namespace {

const std::string module_name = "model.layers.2.", last_layer = "model.layers.1.";
const std::vector<std::string> shared = {"embed_tokens.weight", "shared_head.head.weight"};

HuggingFaceFolder::Tensor random_tensor(std::vector<std::int64_t> shape, std::uint32_t seed) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * sizeof(float));
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    seed = seed * 1664525u + 1013904223u;
    const float number = static_cast<float>(seed >> 8) / static_cast<float>(1 << 26) - 0.125f;
    std::memcpy(bytes.data() + i, &number, sizeof number);
  }
  return {DType::f32, std::move(shape), std::move(bytes)};
}

// As V3's: a block like the last layer's, what stands around it, and table and head once more.
void add_module(HuggingFaceFolder& folder) {
  const auto tensors = folder.tensors;
  std::uint32_t seed = 1;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(last_layer))
      folder.tensors[module_name + name.substr(last_layer.size())] = random_tensor(tensor.shape, ++seed);
  for (const char* norm : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"})
    folder.tensors[module_name + norm] = random_tensor({32}, ++seed);
  folder.tensors[module_name + "eh_proj.weight"] = random_tensor({32, 64}, ++seed);
  folder.tensors[module_name + shared[0]] = tensors.at("model.embed_tokens.weight");
  folder.tensors[module_name + shared[1]] = tensors.at("lm_head.weight");
}

StepResult first_step(const std::filesystem::path& from, const std::vector<std::string>& sets) {
  const Assembly assembly(recipe_from(from, "deepseek3", sets), plugins());
  Trainer trainer(assembly, plugins());
  return trainer.step();
}

TEST(FurtherTokensOfFiles, AreLeftOutUnlessAskedFor) {
  HuggingFaceFolder folder("deepseek3");
  add_module(folder);
  const std::string path = folder.write();
  const StepResult without = first_step(path, {}), with_it = first_step(path, {"model.mtp_layers=1"});
  EXPECT_NEAR(without.loss / expected_loss("deepseek3"), 1.0, 1e-5);
  EXPECT_EQ(with_it.loss, without.loss);
  EXPECT_EQ(with_it.tallies.size(), without.tallies.size() + 2);  // its loss, and its choices
  EXPECT_THROW(first_step(hugging_face("deepseek3"), {"model.mtp_layers=1"}), Error);
  EXPECT_THROW(first_step(path, {"model.mtp_layers=2"}), Error);
}

// Trained so little that no number changes.
TEST(FurtherTokensOfFiles, ComeBackByteForByte) {
  const TempFolder folder;
  HuggingFaceFolder there("deepseek3");
  add_module(there);
  const std::vector<std::string> sets =
      with({"run.out=" + (folder / "run"), "model.mtp_layers=1", "optimizer.plugin=sgd", "optimizer.lr=1e-30",
            "model.router_bias_rate=0"},
           on_cpu().sets);
  const std::string layout =
      "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
      "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n";
  run_local_ranks(recipe_from(there.write(), "deepseek3", sets, layout), plugins().places(),
                  [&](Trainer& trainer) {
                    train_steps(trainer, 1);
                    trainer.save();
                  });
  export_checkpoint(plugins(), {folder / "run", folder / "back", {}, 1 << 30, {}});
  const SafetensorsFile back(std::filesystem::path(folder / "back") / "model.safetensors");
  EXPECT_EQ(back.entries().size(), there.tensors.size() - shared.size());
  for (const SafetensorsEntry& entry : back.entries()) {
    const auto bytes = back.bytes(entry);
    EXPECT_EQ(entry.shape, there.tensors.at(entry.name).shape) << entry.name;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), there.tensors.at(entry.name).bytes.begin(),
                           there.tensors.at(entry.name).bytes.end()))
        << entry.name;
  }
  EXPECT_NE(read_file(folder / "back/config.json").find("\"num_nextn_predict_layers\":1"), std::string::npos);
}

TEST(FurtherTokensOfFiles, GoOutWhereTheFamilyHasAPlaceForThem) {
  const Assembly assembly(tiny_recipe({"model.plugin=llama", "model.mtp_layers=1",
                                       "run.out=" + (temporary_folder() / "mtp").string()}),
                          plugins());
  Trainer trainer(assembly, plugins());
  trainer.step();
  trainer.save();
  try {
    export_checkpoint(plugins(),
                      {temporary_folder() / "mtp", temporary_folder() / "mtp_out", {}, 1 << 30, {}});
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("'head.mtp1.norm_token.gain' give only some of its elements; weights of others have "
                        "no place for it"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace prun::test::mtp_test
