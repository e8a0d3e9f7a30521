// What models make of a config.json: what they take, what they refuse by name, and that it comes back.
#include <gtest/gtest.h>

#include "support/hugging_face.hpp"
#include "train/assemble/model_program.hpp"
#include "train/foreign/model_config.hpp"

namespace prun::test {
namespace {

using Options = std::map<std::string, std::string>;

Options options_of(const std::string& folder, const std::string& plugin = {}) {
  const auto list = plugins().model_options(plugin, folder);
  return {list.begin(), list.end()};
}

std::string refusal(const ForeignFolder& folder, const std::string& plugin = {}) {
  try {
    options_of(folder.write(), plugin);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "accepted";
}

TEST(Config, GivesPluginAndOptions) {
  EXPECT_EQ(options_of(hugging_face("gpt2")), (Options{{"plugin", "\"gpt\""},
                                                       {"layers", "2"},
                                                       {"hidden", "32"},
                                                       {"heads", "4"},
                                                       {"ffn", "128"},
                                                       {"vocab", "64"},
                                                       {"positions", "32"},
                                                       {"tied", "true"},
                                                       {"norm_eps", "0.00001"}}));
  const Options llama = options_of(hugging_face("llama"));
  EXPECT_EQ(llama.at("plugin"), "\"llama\"");
  EXPECT_EQ(llama.at("kv_heads"), "2");
  EXPECT_EQ(llama.at("rope_base"), "500.0");
  EXPECT_EQ(llama.at("rope_factor"), "8.0");
  EXPECT_EQ(llama.at("rope_original"), "32.0");
  EXPECT_EQ(options_of(hugging_face("llama_tied")).at("tied"), "true");
  EXPECT_EQ(options_of(hugging_face("qwen2")).at("qkv_bias"), "true");
}

// Before release 5 of transformers the base stood beside a table, whose kind was called `type` once.
TEST(Config, ReadsOlderTablesOfRotaryPositions) {
  const Options now = options_of(hugging_face("llama"));
  for (const char* kind : {"rope_type", "type"}) {
    ForeignFolder folder("llama");
    folder.configure("\"rope_parameters\"", "\"rope_theta\": 500.0, \"rope_scaling\"");
    folder.configure("\"rope_theta\": 500.0,\n    \"rope_type\"", std::string("\"") + kind + "\"");
    EXPECT_EQ(options_of(folder.write()), now) << kind;
  }
  ForeignFolder plain("llama_tied");
  plain.configure("\"rope_parameters\"", "\"rope_theta\": 10000.0, \"rope_scaling\": null, \"other\"");
  EXPECT_EQ(options_of(plain.write()), options_of(hugging_face("llama_tied")));
}

// Releases of transformers differ in which of two tables they take.
TEST(Config, TwoTablesOfRotaryPositionsMustSayTheSame) {
  const std::string older = R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 500.0}, "head_dim")";
  ForeignFolder alike("llama");
  alike.configure("\"head_dim\"", older);
  EXPECT_EQ(options_of(alike.write()), options_of(hugging_face("llama")));
  const struct {
    const char* text;
    const char* other;
    const char* reason;
  } cases[] = {
      {"\"factor\": 8.0, \"low", "\"factor\": 32.0, \"low",
       "'rope_parameters' makes 'factor' 8 and 'rope_scaling' makes it 32; leave one of them"},
      {"\"rope_type\": \"llama3\", \"factor\"", "\"rope_type\": \"default\", \"factor\"",
       "'rope_parameters' makes 'factor' 8 and 'rope_scaling' makes it 1;"},
      {", \"rope_theta\": 500.0}", "}",
       "'rope_parameters' makes 'rope_theta' 500 and 'rope_scaling' makes it 10000;"},
      {"\"rope_type\": \"llama3\", \"factor\"", "\"rope_type\": \"yarn\", \"factor\"",
       "'rope_scaling.rope_type' is 'yarn'"},
      {"\"head_dim\"", "\"rope_theta\": 10000.0, \"head_dim\"",
       "'rope_theta' is 10000 and 'rope_parameters.rope_theta' 500; leave one of them"},
  };
  for (const auto& c : cases) {
    ForeignFolder folder("llama");
    folder.configure("\"head_dim\"", older);
    folder.configure(c.text, c.other);
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(c.reason), std::string::npos) << "wanted: " << c.reason << "\ngot: " << said;
    EXPECT_NE(said.find("config.json"), std::string::npos) << said;
  }
}

TEST(Config, ATableOfPositionsForEachKindOfLayerIsRefused) {
  ForeignFolder folder("llama");
  folder.configure("\"rope_parameters\": {", "\"rope_parameters\": {\"full_attention\": {}, ");
  EXPECT_NE(refusal(folder).find("'rope_parameters.full_attention' asks for"), std::string::npos)
      << refusal(folder);
}

TEST(Config, WhatAModelWritesItReads) {
  for (const std::string& model : hugging_face_models) {
    const ModelProgram before = write_model(
        model_recipe(plugins(), {"model.seq=8", "model.config=" + hugging_face(model).string()}), plugins());
    const ConfigValues written = written_config(*before.model, before.context);
    TempFolder folder;
    folder.write("config.json", config_text(written));
    const ModelProgram after =
        write_model(model_recipe(plugins(), {"model.seq=8", "model.config=" + folder.path()}), plugins());
    EXPECT_EQ(written_config(*after.model, after.context), written) << model;
    EXPECT_EQ(options_of(folder.path()), options_of(hugging_face(model))) << model;
  }
}

TEST(Config, WritesTablesAndReals) {
  EXPECT_EQ(
      config_text(
          {{"a", std::int64_t{1}}, {"t.x", 8.0}, {"t.y", true}, {"l", std::vector<std::string>{"z"}}}),
      "{\"a\":1,\"t\":{\"x\":8.0,\"y\":true},\"l\":[\"z\"],\"bos_token_id\":null,\"eos_token_id\":null}\n");
}

TEST(Config, RefusesByNameWhatTheModelDoesNotCompute) {
  const struct {
    const char* model;
    const char* text;
    const char* other;
    const char* reason;
  } cases[] = {
      {"llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\"",
       "'rope_parameters.rope_type' is 'yarn'"},
      {"llama", "\"attention_bias\": false", "\"attention_bias\": true", "'attention_bias' is true"},
      {"llama", "\"mlp_bias\": false", "\"mlp_bias\": true", "'mlp_bias' is true"},
      {"llama", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'hidden_act' is 'gelu'"},
      {"llama", "\"rope_theta\"", "\"partial_rotary_factor\": 0.5, \"rope_theta\"",
       "partial_rotary_factor' is 0.5"},
      {"llama", "\"head_dim\"", "\"quantization_config\": {}, \"head_dim\"", "'quantization_config'"},
      {"qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": true",
       "'use_sliding_window' is true"},
      {"qwen2", "\"full_attention\"", "\"sliding_attention\"", "'layer_types' has 'sliding_attention'"},
      {"gpt2", "\"gelu_new\"", "\"relu\"", "'activation_function' is 'relu'"},
      {"gpt2", "\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true",
       "'scale_attn_by_inverse_layer_idx' is true"},
      {"gpt2", "\"n_head\": 4", "\"n_heads\": 4", "'n_head' is missing"},
      {"gpt2", "\"n_head\": 4", "\"n_head\": \"4\"", "'n_head' is not a whole number"},
      {"gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"mamba\"",
       "no model plugin reads a config.json of model_type 'mamba'"},
      {"gpt2", "\"model_type\"", "\"kind\"", "has no model_type"},
  };
  for (const auto& c : cases) {
    ForeignFolder folder(c.model);
    folder.configure(c.text, c.other);
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(c.reason), std::string::npos) << "wanted: " << c.reason << "\ngot: " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_NE(refusal(ForeignFolder("gpt2"), "llama")
                .find("is of model_type 'gpt2', and model plugin 'llama' reads llama,qwen2"),
            std::string::npos)
      << refusal(ForeignFolder("gpt2"), "llama");
}

// Its own keys win where only the options come from elsewhere.
TEST(Config, ARecipesOwnKeysWin) {
  const Recipe recipe = model_recipe(
      plugins(),
      {"model.seq=8", "model.config=" + (hugging_face("gpt2") / "config.json").string(), "model.layers=3"});
  EXPECT_EQ(recipe.integer("model.layers"), 3);
  EXPECT_EQ(recipe.integer("model.hidden"), 32);
  EXPECT_EQ(recipe.section("model").plugin(), "gpt");
  EXPECT_EQ(recipe.with("model.hidden", "64").integer("model.hidden"), 64);
}

TEST(Config, ARecipesProblemsNameFileAndKey) {
  ForeignFolder folder("gpt2");
  folder.configure("\"n_head\": 4", "\"n_head\": 0");
  const auto problem = [](const std::string& config) {
    try {
      model_recipe(plugins(), {"model.seq=8", "model.config=" + config});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(problem(folder.write()).find("heads = 0: error: 'heads' in [model] is 0"), std::string::npos)
      << problem(folder.write());
  EXPECT_NE(problem("nowhere").find("cannot read 'nowhere': there is no such file"), std::string::npos)
      << problem("nowhere");
}

}  // namespace
}  // namespace prun::test
