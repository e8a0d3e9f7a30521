// Wherever a file is read whole, what is none is refused: one sentence with its path, exit code 2, no hang.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "binary.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class NoFile : public testing::Test {
 protected:
  NoFile() {
    EXPECT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    fs::create_directory(folder_ / "folder");
    fs::copy(PRUN_TEST_FIXTURES "/hugging_face/gpt2", folder_ / "hub");
  }

  // What is named by a link says it by the link's name.
  void refused(const std::vector<std::string>& words, const std::string& named) {
    const Result result = prun(words);
    EXPECT_EQ(result.code, 2) << words[0] << " " << named << ": " << result.out;
    EXPECT_NE(result.out.find(named), std::string::npos) << words[0] << ": " << result.out;
    EXPECT_EQ(result.out.find("unexpected"), std::string::npos) << result.out;
  }
  void link(const std::string& to, const std::string& name) {
    fs::remove(folder_ / name);
    fs::create_symlink(to, folder_ / name);
  }

  const TempFolder folder_;
  const std::vector<std::string> none_ = {"/proc/self/mem", "/dev/zero", folder_ / "pipe",
                                          folder_ / "folder"};
  const std::string recipe_ = folder_.write(
      "recipe.toml",
      "[run]\nname = \"a\"\nsteps = 1\n[model]\nplugin = \"gpt\"\nlayers = 1\nhidden = 32\nheads = "
      "2\nseq = 16\nvocab = 64\n[data]\nplugin = \"text\"\npath = \".\"\n[batch]\nglobal = 1\n"
      "micro = 1\n[optimizer]\nplugin = \"adamw\"\nlr = 1e-3\n");
};

TEST_F(NoFile, AsARecipeOrAConfiguration) {
  for (const std::string& none : none_) {
    refused({"check", none}, none);
    refused({none}, none);
    refused({"convert", none}, none);
    refused({"check", recipe_, "--set", "model.config=" + none}, none);
    refused({"plan", recipe_, "--costs", none}, none);
  }
}

TEST_F(NoFile, InAFolderOfHuggingFace) {
  for (const std::string& none : none_)
    for (const char* name : {"hub/config.json", "hub/model.safetensors.index.json", "hub/tokenizer.json"}) {
      fs::remove_all(folder_ / "hub");
      fs::copy(PRUN_TEST_FIXTURES "/hugging_face/gpt2", folder_ / "hub");
      link(none, name);
      if (std::string(name).find("tokenizer") == std::string::npos)
        refused({"import", folder_ / "hub", "--out", folder_ / "out"}, folder_ / name);
      else
        refused({"tokenize", folder_ / "hub", recipe_, "--out", folder_ / "out"}, folder_ / name);
    }
}

TEST_F(NoFile, AsAManifest) {
  for (const std::string& none : none_) {
    fs::create_directories(folder_ / "step");
    link(none, "step/manifest.json");
    refused({"ckpt", "show", folder_ / "step"}, folder_ / "step/manifest.json");
  }
}

// Every reason names file and key.
TEST_F(NoFile, WhatAFileLacksIsNamedWithIt) {
  const auto import_with = [&](const char* name, const std::string& text) {
    fs::remove_all(folder_ / "hub");
    fs::copy(PRUN_TEST_FIXTURES "/hugging_face/gpt2", folder_ / "hub");
    folder_.write(name, text);
    const Result result = prun({"import", folder_ / "hub", "--out", folder_ / "out"});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_NE(result.out.find(folder_ / name), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("'plugin'"), std::string::npos) << result.out;
    return result.out;
  };
  const char* const index = "hub/model.safetensors.index.json";
  for (const char* text : {"{}", "[]", "3", "{\"weight_map\": 3}", "{\"weight_map\": []}"})
    EXPECT_NE(import_with(index, text).find("has no table 'weight_map'"), std::string::npos) << text;
  EXPECT_NE(import_with(index, "{\"weight_map\": {\"wte.weight\": null}}").find("'wte.weight'"),
            std::string::npos);
  EXPECT_NE(import_with(index, "{\"weight_map\": ").find("byte"), std::string::npos);
  EXPECT_NE(import_with(index, "{\"weight_map\": {\"none\": \"model.safetensors\"}}")
                .find("does not fit its files: " + folder_ / "hub/model.safetensors" +
                      ": there is no tensor 'none'"),
            std::string::npos);
  const char* const config = "hub/config.json";
  for (const char* text : {"[]", "3", "null", "{\"model_type\": 3}", "{\"model_type\": null}"})
    EXPECT_NE(import_with(config, text).find("has no model_type"), std::string::npos) << text;
  const std::string gpt2 = "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": ",
                    rest = ", \"vocab_size\": 64, \"n_positions\": 32}";
  EXPECT_NE(import_with(config, gpt2 + "4" + rest).find("'n_layer' is missing"), std::string::npos);
  EXPECT_NE(import_with(config, gpt2 + "4, \"n_layer\": [2]" + rest).find("'n_layer' is not a whole number"),
            std::string::npos);
  EXPECT_NE(import_with(config, gpt2 + "4, \"n_layer\": 0" + rest).find("'layers' in [model] is 0"),
            std::string::npos);
  EXPECT_NE(
      import_with(config, gpt2 + "5, \"n_layer\": 2" + rest).find("model.hidden = 32 is not a multiple"),
      std::string::npos);
  const std::string llama =
      "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": "
      "4, "
      "\"intermediate_size\": 4, \"vocab_size\": 64, ";
  for (const char* table : {"rope_parameters", "rope_scaling"})
    EXPECT_NE(import_with(config, llama + "\"" + table + "\": \"linear\"}")
                  .find(std::string("'") + table + "' is not a table"),
              std::string::npos);
}

}  // namespace
}  // namespace prun::test
