// prun import and export, and runs that start from what they write, as a user starts them.
#include <gtest/gtest.h>

#include "binary.hpp"
#include "support/hugging_face.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

void expect(const Result& result, int code, const std::string& part) {
  EXPECT_EQ(result.code, code) << result.out;
  EXPECT_NE(result.out.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << result.out;
}

TEST(HuggingFaceCommands, ThereAndBackAndTrainedOn) {
  const TempFolder folder;
  const std::string there = hugging_face("llama").string(), here = folder / "here", back = folder / "back";
  expect(prun({"import", there, "--out", here, "--type", "bf16"}), 0, "plugin = \"llama\"\nlayers = 2\n");
  expect(prun({"ckpt", "verify", here}), 0, "good, 15 tensors");
  expect(prun({"export", here, "--out", back, "--file-size", "20KB"}), 0, "21 tensors, ");
  EXPECT_TRUE(fs::exists(fs::path(back) / "model.safetensors.index.json"));
  const std::string recipe =
      folder.write("from.toml", recipe_from(hugging_face("llama"), "llama").resolved_toml());
  expect(prun({recipe, "--set", "model.init=" + back, "--set", "run.steps=2", "--set", "run.save_every=2",
               "--set", "run.out=" + (folder / "run")}),
         0, "");
  expect(prun({"export", folder / "run", "--out", folder / "trained"}), 0, "step-00000002");
  // The same weights, two ranks.
  const std::string two = folder.write(
      "two.toml",
      recipe_from(hugging_face("llama"), "llama", {"batch.micro=1"}, data_parallel(2)).resolved_toml());
  expect(prun({two, "--set", "run.steps=1", "--set", "run.out=" + (folder / "two")}), 0, "");
}

std::string listed(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += (text.empty() ? "" : ",") + std::to_string(token);
  return text;
}

TEST(HuggingFaceCommands, GreedyTextIsThatOfTransformers) {
  for (const std::string& model : text_models) {
    const TempFolder folder;
    expect(prun({"import", hugging_face(model).string(), "--out", folder / "here"}), 0, "tensors");
    const std::vector<std::int32_t> text = greedy_text(model);
    const auto added = text.end() - greedy_tokens;
    expect(prun({"generate", folder / "here", "--tokens", listed({text.begin(), added}), "--max-tokens",
                 std::to_string(greedy_tokens), "--set", "device.plugin=cpu"}),
           0, listed({added, text.end()}) + "\n");
  }
}

// transformers decides by the length of what it has which list pairs turn by, token for token.
TEST(HuggingFaceCommands, ATextThatGrowsPastASwitchOfListsIsRefused) {
  const TempFolder folder;
  expect(prun({"import", hugging_face("phi3_long").string(), "--out", folder / "here"}), 0, "tensors");
  const auto generate = [&](const char* tokens, const char* most) {
    return prun({"generate", folder / "here", "--tokens", tokens, "--max-tokens", most, "--set",
                 "device.plugin=cpu"});
  };
  expect(generate("5,6,7,8,9,10,11,12", "8"), 2,
         "model.rope_switch = 14 positions otherwise, and texts that grow past that are not computed anew; "
         "make --max-tokens 7 at most");
  expect(generate("5,6,7,8,9,10,11,12", "7"), 0, ",");
}

// Its encoder sees the prompt, and its decoder writes.
TEST(HuggingFaceCommands, WhatT5WritesIsThatOfTransformers) {
  const TempFolder folder;
  const SafetensorsFile file(hugging_face("t5") / "expected.safetensors");
  const auto written = numbers_of<std::int32_t>(file, "written");
  ASSERT_EQ(written.size(), static_cast<std::size_t>(greedy_tokens));
  expect(prun({"import", hugging_face("t5").string(), "--out", folder / "here"}), 0, "tensors");
  std::vector<std::string> words = {"generate",     folder / "here",
                                    "--tokens",     listed(numbers_of<std::int32_t>(file, "prompt")),
                                    "--max-tokens", std::to_string(greedy_tokens),
                                    "--set",        "device.plugin=cpu"};
  expect(prun(words), 0, listed(written) + "\n");
  words.insert(words.end(), {"--temperature", "0.7", "--seed", "3"});
  const Result drawn = prun(words);
  EXPECT_EQ(drawn.code, 0) << drawn.out;
  EXPECT_NE(drawn.out, listed(written) + "\n");
  EXPECT_EQ(prun(words).out, drawn.out);
}

TEST(HuggingFaceCommands, BertMakesNoTextAndSaysWhy) {
  const TempFolder folder;
  expect(prun({"import", hugging_face("bert").string(), "--out", folder / "here"}), 0, "tensors");
  expect(prun({"generate", folder / "here", "--tokens", "5,6", "--max-tokens", "4", "--set",
               "device.plugin=cpu"}),
         2, "cannot generate text with model 'bert': it predicts masked tokens, not the next one");
}

// The first two texts of the fixture's stream twice, of which the second half is validated on.
TEST(HuggingFaceCommands, TheLossOfAnImportedT5IsThatOfTransformers) {
  const TempFolder folder;
  constexpr std::ptrdiff_t texts = 2 * 16;
  const auto once =
      numbers_of<std::int32_t>(SafetensorsFile(hugging_face("t5") / "expected.safetensors"), "tokens");
  std::vector<std::int32_t> twice(once.begin(), once.begin() + texts);
  twice.insert(twice.end(), once.begin(), once.begin() + texts + 1);
  const std::string tokens = write_tokens(folder / "tokens.bin", twice).string();
  expect(prun({"import", hugging_face("t5").string(), "--out", folder / "here"}), 0, "tensors");
  std::vector<std::string> words = {"eval", folder / "here", "--json", "--batches", "2"},
                           sets = data_of("t5");
  sets.insert(sets.end(),
              {"data.path=" + tokens, "data.validation=0.5", "device.plugin=cpu", "model.seq=24"});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  const Result result = prun(words);
  ASSERT_EQ(result.code, 0) << result.out;
  const std::string key = "\"eval_loss\":";
  EXPECT_NEAR(std::stod(result.out.substr(result.out.find(key) + key.size())) / expected_loss("t5"), 1.0,
              1e-5);
}

TEST(HuggingFaceCommands, TheLossOfAnImportedCheckpointIsThatOfTransformers) {
  const TempFolder folder;
  // The fixture's two sequences twice, of which the second half is validated on.
  const auto once =
      numbers_of<std::int32_t>(SafetensorsFile(hugging_face("qwen2") / "expected.safetensors"), "tokens");
  std::vector<std::int32_t> twice(once.begin(), once.end() - 1);
  twice.insert(twice.end(), once.begin(), once.end());
  const std::string tokens = write_tokens(folder / "tokens.bin", twice).string();
  expect(prun({"import", hugging_face("qwen2").string(), "--out", folder / "here"}), 0, "tensors");
  std::vector<std::string> words = {
      "eval",  folder / "here",       "--json", "--batches",        "2", "--set", "data.path=" + tokens,
      "--set", "data.validation=0.5", "--set",  "device.plugin=cpu"};
  expect(prun(words), 2, "was imported, so nothing says how long sequences are: give --set model.seq=N");
  words.insert(words.end(), {"--set", "model.seq=24"});
  const Result result = prun(words);
  ASSERT_EQ(result.code, 0) << result.out;
  const std::string key = "\"eval_loss\":";
  EXPECT_NEAR(std::stod(result.out.substr(result.out.find(key) + key.size())) / expected_loss("qwen2"), 1.0,
              1e-5);
}

TEST(HuggingFaceCommands, SayWhatIsWrong) {
  const TempFolder folder;
  const std::string gpt2 = hugging_face("gpt2").string();
  expect(prun({"import", gpt2}), 2, "usage: prun import DIR --out CKPT [--type bf16|fp16|fp32]");
  expect(prun({"import", gpt2, "--out", folder / "x", "--type", "fp8"}), 2,
         "--type takes bf16, fp16 or fp32, not 'fp8'");
  expect(prun({"export", gpt2, "--out", folder / "x"}), 2, "holds no checkpoint");
  expect(prun({"export", folder / "none", "--out", folder / "x"}), 2, "none is not there");
  expect(prun({"export", gpt2, "--out", folder / "x", "--file-size", "-1"}), 2,
         "--file-size takes a size such as 5GB");
  expect(prun({"import", folder.path(), "--out", folder / "x"}), 2, "config.json': there is no such file");
  EXPECT_FALSE(fs::exists(folder / "x"));
}

}  // namespace
}  // namespace prun::test
