// prun import and export: what goes in comes out, byte for byte, and what was trained goes out as it is.
#include <gtest/gtest.h>

#include <cmath>

#include "hugging_face/hugging_face.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::conversion_test {
namespace {

namespace fs = std::filesystem;

// The tensors of all files of a folder: type, shape and bytes.
std::map<std::string, std::pair<std::string, std::vector<std::byte>>> tensors_of(const fs::path& folder) {
  std::map<std::string, std::pair<std::string, std::vector<std::byte>>> tensors;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors" || entry.path().filename() == "expected.safetensors")
      continue;
    const SafetensorsFile file(entry.path());
    for (const SafetensorsEntry& one : file.entries())
      tensors[one.name] = {std::string(name_of(one.type)) + shape_text(one.shape),
                           {file.bytes(one).begin(), file.bytes(one).end()}};
  }
  return tensors;
}

std::size_t files_in(const fs::path& folder) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    count += entry.path().extension() == ".safetensors";
  return count;
}

class Conversions : public testing::TestWithParam<std::string> {
 protected:
  const TempFolder folder_;
  const fs::path there_ = hugging_face(GetParam()), here_ = folder_ / "here", back_ = folder_ / "back";
};
INSTANTIATE_TEST_SUITE_P(HuggingFace, Conversions, testing::ValuesIn(hugging_face_models),
                         [](const auto& model) { return model.param; });

TEST_P(Conversions, ComeBackByteForByte) {
  const std::string said = import_directory(plugins(), {there_, here_, {}, {}, {}});
  EXPECT_NE(said.find("init = \"" + here_.string() + "\""), std::string::npos) << said;
  export_checkpoint(plugins(), {here_, back_, {}, 1 << 30, {}});
  EXPECT_EQ(tensors_of(back_), tensors_of(there_));
  EXPECT_EQ(plugins().model_options("", back_), plugins().model_options("", there_));
  const fs::path cut = folder_ / "cut";
  export_checkpoint(plugins(), {here_, cut, {}, 20'000, {}});
  EXPECT_GT(files_in(cut), 3u);
  EXPECT_EQ(tensors_of(cut), tensors_of(there_));
  // And in from files that an index names.
  import_directory(plugins(), {cut, folder_ / "again", {}, {}, {}});
  EXPECT_EQ(saved_in(folder_ / "again"), saved_in(here_));
}

TEST_P(Conversions, HalvesComeBackByteForByte) {
  import_directory(plugins(), {there_, folder_ / "half", DType::bf16, {}, {}});
  export_checkpoint(plugins(), {folder_ / "half", folder_ / "bf16", {}, 1 << 30, {}});
  EXPECT_EQ(tensors_of(folder_ / "bf16").begin()->second.first.substr(0, 4), "BF16");
  EXPECT_NE(read_file(folder_ / "bf16/config.json").find("\"torch_dtype\":\"bfloat16\""), std::string::npos);
  import_directory(plugins(), {folder_ / "bf16", here_, {}, {}, {}});
  export_checkpoint(plugins(), {here_, back_, {}, 1 << 30, {}});
  EXPECT_EQ(tensors_of(back_), tensors_of(folder_ / "bf16"));
  // Wider, and narrow again.
  export_checkpoint(plugins(), {here_, folder_ / "wide", DType::f32, 1 << 30, {}});
  import_directory(plugins(), {folder_ / "wide", folder_ / "wide_here", {}, {}, {}});
  export_checkpoint(plugins(), {folder_ / "wide_here", folder_ / "narrow", DType::bf16, 1 << 30, {}});
  EXPECT_EQ(tensors_of(folder_ / "narrow"), tensors_of(folder_ / "bf16"));
}

TEST_P(Conversions, ARunStartsFromWhatWasImported) {
  import_directory(plugins(), {there_, here_, {}, {}, {}});
  std::vector<std::string> sets;
  for (const auto& [key, text] : plugins().model_options("", there_))
    sets.push_back("model." + key + "=" + text);
  if (GetParam().starts_with("bert")) sets.emplace_back("run.allow_changed=['model.separator']");
  if (GetParam() == "t5") sets.emplace_back("run.allow_changed=['model.inputs']");
  const Assembly assembly(recipe_from(here_, GetParam(), sets), plugins());
  Trainer trainer(assembly, plugins());
  EXPECT_NEAR(trainer.step().loss / expected_loss(GetParam()), 1.0, 1e-5);
}

// In parts and in bf16 with masters: what goes out as fp32 is the masters, as bf16 the parameters.
TEST_P(Conversions, WhatWasTrainedGoesOut) {
  std::vector<std::string> sets =
      with({"precision.compute=bf16", "run.out=" + (folder_ / "run")}, on_cpu().sets);
  const std::string layout =
      "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
      "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n";
  run_local_ranks(recipe_from(there_, GetParam(), sets, layout), plugins().places(), [&](Trainer& trainer) {
    train_steps(trainer, 3);
    trainer.save();
  });
  export_checkpoint(plugins(), {folder_ / "run/step-00000003", folder_ / "fp32", DType::f32, 1 << 30, {}});
  export_checkpoint(plugins(), {folder_ / "run", folder_ / "bf16", {}, 1 << 30, {}});
  EXPECT_NE(tensors_of(folder_ / "fp32"), tensors_of(there_));
  const Tensors saved = saved_in(folder_ / "run/step-00000003");
  for (const auto& [out, suffix] : {std::pair("fp32", ".master"), {"bf16", ""}}) {
    import_directory(plugins(), {folder_ / out, folder_ / (std::string(out) + "_here"), {}, {}, {}});
    for (const auto& [name, bytes] : saved_in(folder_ / (std::string(out) + "_here"))) {
      const bool trained = saved.contains(name + suffix);  // what nothing trains has no master copy
      EXPECT_EQ(saved.at(trained ? name + suffix : name), bytes) << out << " " << name;
    }
  }
}

// As torch and IEEE 754 do.
TEST(Conversion, TiesRoundToEven) {
  const TempFolder folder;
  HuggingFaceFolder there("llama");
  std::vector<std::byte>& bytes = there.tensors.at("model.norm.weight").bytes;
  constexpr std::uint32_t ties[] = {0x3d608000, 0x3d618000, 0xbd628000, 0xbd638000};
  std::memcpy(bytes.data(), ties, sizeof ties);
  import_directory(plugins(), {there.write(), folder / "narrow", DType::bf16, {}, {}});
  import_directory(plugins(), {there.write(), folder / "wide", {}, {}, {}});
  for (const char* from : {"narrow", "wide"}) {
    const fs::path out = folder / (std::string(from) + "_out");
    export_checkpoint(plugins(), {folder / from, out, DType::bf16, 1 << 30, {}});
    const auto halves =
        numbers_of<std::uint16_t>(SafetensorsFile(out / "model.safetensors"), "model.norm.weight");
    EXPECT_EQ(std::vector(halves.begin(), halves.begin() + 4),
              (std::vector<std::uint16_t>{0x3d60, 0x3d62, 0xbd62, 0xbd64}))
        << from;
  }
}

TEST(Conversion, WhatStandsInTheWayIsLeftAlone) {
  const TempFolder folder;
  folder.write("there/mine", "x");
  EXPECT_THROW(import_directory(plugins(), {hugging_face("gpt2"), folder / "there", {}, {}, {}}), Error);
  EXPECT_EQ(read_file(folder / "there/mine"), "x");
  HuggingFaceFolder bad("gpt2");
  const float infinite = -INFINITY;
  std::memcpy(bad.tensors.at("transformer.ln_f.bias").bytes.data(), &infinite, 4);
  EXPECT_THROW(import_directory(plugins(), {bad.write(), folder / "bad", {}, {}, {}}), Error);
  EXPECT_FALSE(fs::exists(folder / "bad"));
}

}  // namespace
}  // namespace prun::test::conversion_test
