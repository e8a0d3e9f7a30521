// What models make of a config.json: what they take, what they refuse by name, and that it comes back.
#include <gtest/gtest.h>

#include <cmath>

#include "huggingface/config.hpp"
#include "support/hugging_face.hpp"
#include "train/assemble/model_program.hpp"

namespace prun::test::config_test {
namespace {

using Options = std::map<std::string, std::string>;

Options options_of(const std::string& folder, const std::string& plugin = {}) {
  const auto list = plugins().model_options(plugin, folder);
  return {list.begin(), list.end()};
}

std::string refusal(const HuggingFaceFolder& folder, const std::string& plugin = {}) {
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
                                                       {"bos_token", "50256"},
                                                       {"eos_tokens", "[50256]"},
                                                       {"norm_eps", "0.00001"}}));
  const Options llama = options_of(hugging_face("llama"));
  EXPECT_EQ(llama.at("plugin"), "\"llama\"");
  EXPECT_EQ(llama.at("kv_heads"), "2");
  EXPECT_EQ(llama.at("rope_base"), "500.0");
  EXPECT_EQ(llama.at("rope_factor"), "8.0");
  EXPECT_EQ(llama.at("rope_original"), "32.0");
  EXPECT_EQ(options_of(hugging_face("llama_tied")).at("tied"), "true");
  EXPECT_EQ(options_of(hugging_face("qwen2")).at("qkv_bias"), "true");
  EXPECT_EQ(options_of(hugging_face("qwen2")).count("family"), 0u);
}

TEST(Config, GivesFamiliesAndWindows) {
  const auto expect = [](const char* model, const Options& wanted) {
    const Options options = options_of(hugging_face(model));
    for (const auto& [key, value] : wanted)
      EXPECT_EQ(options.count(key) ? options.at(key) : "", value) << model << ", " << key;
  };
  expect("qwen3", {{"family", "\"qwen3\""}, {"head_dim", "16"}, {"window", ""}});
  expect("qwen2_window", {{"family", ""}, {"qkv_bias", "true"}, {"window", "6"}, {"window_from", "1"}});
  expect("mistral", {{"family", "\"mistral\""}, {"window", "7"}, {"window_from", ""}, {"full_every", ""}});
  expect("gemma3", {{"family", "\"gemma3\""},
                    {"window", "5"},
                    {"full_every", "2"},
                    {"rope_base", "1000.0"},
                    {"rope_base_window", "100.0"},
                    {"rope_scaling", "\"linear\""},
                    {"rope_factor", "8.0"},
                    {"query_scalar", "12.0"},
                    {"tied", "true"}});
  expect("gemma2", {{"window", "5"},
                    {"full_every", "2"},
                    {"query_scalar", "12.0"},
                    {"score_softcap", "1.5"},
                    {"logit_softcap", "2.0"}});
  expect("vaultgemma", {{"window_from", "1"}, {"query_scalar", ""}, {"logit_softcap", "1.0"}});
  expect("gpt_oss", {{"window", "5"},
                     {"full_every", "2"},
                     {"out_bias", "true"},
                     {"rope_truncate", "false"},
                     {"expert_limit", "0.6"},
                     {"expert_alpha", "1.702"}});
  expect("olmo2", {{"family", "\"olmo2\""},
                   {"rope_scaling", "\"yarn\""},
                   {"rope_low", "1.0"},
                   {"rope_high", "4.0"},
                   {"rope_original", "16.0"}});
  expect("phi3", {{"family", "\"phi3\""}, {"window", "40"}});
  expect("smollm", {{"family", ""}, {"rope_scaling", "\"linear\""}, {"rope_factor", "2.0"}});
  expect("seed_oss", {{"family", "\"seed_oss\""}, {"qkv_bias", "true"}});
  expect("internlm3", {{"rope_scaling", "\"dynamic\""}, {"rope_factor", "6.0"}, {"rope_base", "500.0"}});
  expect("smollm3", {{"nope_every", "2"}, {"nope_layers", ""}});
  expect("granite", {{"embedding_scale", "12.0"}, {"residual_scale", "0.22"}, {"logit_divisor", "5.0"}});
  expect("exaone4", {{"window", "6"}, {"full_every", "2"}, {"nope_every", "2"}});
  expect("olmo3", {{"rope_factor", "4.0"}, {"rope_base_window", "500.0"}, {"full_every", "3"}});
  expect("cwm", {{"window", "5"}, {"window_from", "1"}, {"rope_factor", "8.0"}});
  expect("llama_biases", {{"qkv_bias", "true"}, {"out_bias", "true"}, {"mlp_bias", "true"}});
  expect("ministral3", {{"rope_growth", "0.5"}, {"rope_original", "8.0"}, {"rope_scaling", "\"yarn\""}});
  expect("ernie4_5", {{"rope_channels", ""}, {"out_bias", "true"}});
  expect("glm4", {{"rope_channels", "8"}, {"qkv_bias", "false"}});
  expect("glm4_moe", {{"rope_channels", "8"}, {"head_norm", "true"}, {"router_bias", "true"}});
  expect("glm4_moe_air", {{"head_norm", "false"}});
  expect("minimax_m2", {{"rope_channels", "8"}, {"router", "\"sigmoid\""}});
  expect("phi3_partial", {{"rope_channels", "6"}});
  expect("phi3_long", {{"rope_switch", "14"},
                       {"rope_short", "[1.0, 1.1, 1.4, 2.5]"},
                       {"rope_long", "[1.2, 3.0, 5.5, 9.0]"},
                       {"rope_factor", "1.0"}});
  expect("phi3_short", {{"rope_channels", "6"}, {"rope_switch", "48"}, {"rope_attention", "1.5"}});
  expect("qwen3_next", {{"family", "\"qwen3_next\""},
                        {"attends_every", "2"},
                        {"delta_key_heads", "2"},
                        {"delta_value_heads", "4"},
                        {"delta_key_dim", "8"},
                        {"delta_value_dim", "6"},
                        {"delta_taps", "4"},
                        {"rope_channels", "4"},
                        {"shared_gate", "true"},
                        {"experts", "8"}});
  expect("qwen3_next_dense", {{"attends_every", "2"}, {"experts", ""}});
  expect("qwen3_5", {{"attends_every", "3"}, {"attends_layers", ""}, {"delta_value_heads", "6"}});
  expect("qwen3_5_moe", {{"router_normalise", "true"}, {"sparse_every", ""}});
  expect("glm4_moe_lite", {{"dense_first", "1"}, {"router", "\"sigmoid\""}, {"rope_interleave", "true"}});
}

TEST(Config, OtherNamesOfAFamilyAreReadAsIt) {
  HuggingFaceFolder kimi("deepseek3");
  kimi.configure("\"model_type\": \"deepseek_v3\"", "\"model_type\": \"kimi_k2\"");
  EXPECT_EQ(options_of(kimi.write()), options_of(hugging_face("deepseek3")));
}

// As Hunyuan's files have it: a table that is called dynamic, and a base that does not depend on the length.
TEST(Config, AlphaRaisesABase) {
  const Options options = options_of(hugging_face("hunyuan"));
  EXPECT_EQ(options.at("rope_factor"), "1.0");
  EXPECT_NEAR(std::stod(options.at("rope_base")), 100 * std::pow(50, 8.0 / 6), 1e-9);
}

TEST(Config, DynamicPositionsEndWhereTheyWouldTurnSlower) {
  const auto build = [](const char* seq) {
    write_model(model_recipe(plugins(), {std::string("model.seq=") + seq,
                                         "model.config=" + hugging_face("internlm3").string()}),
                plugins());
  };
  EXPECT_NO_THROW(build("64"));
  try {
    build("65");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("beyond model.positions = 64, and model.seq is 65"),
              std::string::npos)
        << error.what();
  }
}

// Releases differ in what windowed layers of OLMo 3 turn by where a file has a single base.
TEST(Config, OlderFilesOfOlmo3HaveTheBaseThatAllReleasesTake) {
  HuggingFaceFolder folder("olmo3");
  const std::size_t table = folder.config.find("\"rope_parameters\""),
                    after = folder.config.find("\"sliding_window\"");
  folder.config.replace(
      table, after - table,
      "\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"original_max_position_embeddings\": 16},\n  ");
  EXPECT_EQ(options_of(folder.write()).at("rope_base_window"), "500000.0");
  folder.configure("500000", "1000");
  EXPECT_NE(refusal(folder).find("'rope_theta' is 1000, and releases of transformers differ"),
            std::string::npos)
      << refusal(folder);
}

// Before layer_types, a number said which of Gemma 3's layers see all, and two which bases they turn by.
TEST(Config, ReadsOlderFilesOfGemma) {
  HuggingFaceFolder folder("gemma3");
  const std::size_t begin = folder.config.find("\"layer_types\""), end = folder.config.find("]", begin) + 1;
  folder.config.replace(begin, end - begin, "\"sliding_window_pattern\": 2");
  const std::size_t table = folder.config.find("\"rope_parameters\""),
                    after = folder.config.find("\"sliding_window\"");
  folder.config.replace(table, after - table,
                        R"("rope_theta": 1000.0, "rope_local_base_freq": 100.0,
  "rope_scaling": {"rope_type": "linear", "factor": 8.0},
  )");
  EXPECT_EQ(options_of(folder.write()), options_of(hugging_face("gemma3")));
}

// Before release 5 of transformers the base stood beside a table, whose kind was called `type` once.
TEST(Config, ReadsOlderTablesOfRotaryPositions) {
  const Options now = options_of(hugging_face("llama"));
  for (const char* kind : {"rope_type", "type"}) {
    HuggingFaceFolder folder("llama");
    folder.configure("\"rope_parameters\"", "\"rope_theta\": 500.0, \"rope_scaling\"");
    folder.configure("\"rope_theta\": 500.0,\n    \"rope_type\"", std::string("\"") + kind + "\"");
    EXPECT_EQ(options_of(folder.write()), now) << kind;
  }
  HuggingFaceFolder plain("llama_tied");
  plain.configure("\"rope_parameters\"", "\"rope_theta\": 10000.0, \"rope_scaling\": null, \"other\"");
  EXPECT_EQ(options_of(plain.write()), options_of(hugging_face("llama_tied")));
}

// Releases of transformers differ in which of two tables they take.
TEST(Config, TwoTablesOfRotaryPositionsMustSayTheSame) {
  const std::string older = R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 500.0}, "head_dim")";
  HuggingFaceFolder alike("llama");
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
      {"\"rope_type\": \"llama3\", \"factor\"", "\"rope_type\": \"longrope\", \"factor\"",
       "'rope_scaling.rope_type' is 'longrope'"},
      {"\"head_dim\"", "\"rope_theta\": 10000.0, \"head_dim\"",
       "'rope_theta' is 10000 and 'rope_parameters.rope_theta' 500; leave one of them"},
  };
  for (const auto& c : cases) {
    HuggingFaceFolder folder("llama");
    folder.configure("\"head_dim\"", older);
    folder.configure(c.text, c.other);
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(c.reason), std::string::npos) << "wanted: " << c.reason << "\ngot: " << said;
    EXPECT_NE(said.find("config.json"), std::string::npos) << said;
  }
}

TEST(Config, ATableOfPositionsForEachKindOfLayerIsRefused) {
  HuggingFaceFolder folder("llama");
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

// Returns the config.json that is written of what a folder says.
std::string written_again(const HuggingFaceFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = {"model.seq=8", "model.config=" + folder.write()};
  sets.insert(sets.end(), more.begin(), more.end());
  const ModelProgram model = write_model(model_recipe(plugins(), sets), plugins());
  return config_text(written_config(*model.model, model.context));
}

void expect_written(const HuggingFaceFolder& folder, const std::vector<std::string>& parts) {
  const std::string text = written_again(folder);
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// Classes of transformers have defaults for these keys: without them they would compute something else.
TEST(Config, WritesWhatTransformersWouldTakeForSomethingElse) {
  HuggingFaceFolder full("mistral");
  full.configure("\"sliding_window\": 7", "\"sliding_window\": null");
  expect_written(full, {"\"sliding_window\":null", "\"pad_token_id\":null"});
  expect_written(HuggingFaceFolder("dots1"), {"\"sliding_window\":null"});
  expect_written(HuggingFaceFolder("gemma3"), {"\"query_pre_attn_scalar\":12,", "\"pad_token_id\":0"});
  expect_written(HuggingFaceFolder("t5"),
                 {"\"decoder_start_token_id\":0", "\"eos_token_id\":1", "\"pad_token_id\":0"});
}

TEST(Config, TokensThatBeginAndEndATextComeBack) {
  HuggingFaceFolder folder("llama");
  folder.configure("\"eos_token_id\": 2", "\"eos_token_id\": [2, 7], \"pad_token_id\": 5, \"other\": 2");
  folder.configure("\"pad_token_id\": null", "\"another\": null");
  const Options options = options_of(folder.write());
  EXPECT_EQ(options.at("bos_token"), "1");
  EXPECT_EQ(options.at("eos_tokens"), "[2, 7]");
  EXPECT_EQ(options.at("pad_token"), "5");
  expect_written(folder, {"\"bos_token_id\":1,", "\"eos_token_id\":[2,7]", "\"pad_token_id\":5"});
  HuggingFaceFolder from_the_end("llama");
  from_the_end.configure("\"pad_token_id\": null", "\"pad_token_id\": -1");
  EXPECT_EQ(options_of(from_the_end.write()).at("pad_token"), "63");
}

std::string layer_types(const std::string& letters) {
  std::string list;
  for (const char letter : letters)
    list += std::string(list.empty() ? "" : ",") +
            (letter == 'w' ? "\"sliding_attention\"" : "\"full_attention\"");
  return "\"layer_types\":[" + list + "]";
}

// Any list of windowed layers is read, and written where the family's files have the key.
TEST(Config, LayersHaveWindowsInAnyOrder) {
  for (const char* model : {"gemma3", "qwen2_moe"})
    for (const std::string letters : {"wfww", "fwfw", "ffww", "wwww", "wffw", "ffff", "fwff"}) {
      HuggingFaceFolder folder(model);
      const std::size_t begin = folder.config.find("\"layer_types\""), end = folder.config.find(']', begin);
      folder.config.replace(begin, end + 1 - begin, layer_types(letters));
      if (folder.config.find("\"use_sliding_window\"") != std::string::npos) {
        folder.configure("\"use_sliding_window\": false", "\"use_sliding_window\": true");
        folder.configure("\"sliding_window\": 0", "\"sliding_window\": 6");
      }
      expect_written(folder, {layer_types(letters)});
      const bool none = letters.find('w') == std::string::npos;
      EXPECT_EQ(written_again(folder).find("\"sliding_window\":null") != std::string::npos,
                none && std::string(model) != "gemma3");
    }
  HuggingFaceFolder qwen("qwen2_window");
  qwen.configure("\"max_window_layers\": 1", "\"max_window_layers\": 9");  // the list counts
  expect_written(qwen, {layer_types("fw"), "\"use_sliding_window\":true"});
}

// Without a list, Qwen2-MoE has windows in each second layer before max_window_layers.
TEST(Config, WindowsWithoutAListFollowTheFamilysRule) {
  HuggingFaceFolder folder("qwen2_moe");
  const std::size_t begin = folder.config.find("\"layer_types\""), end = folder.config.find("],", begin);
  folder.config.erase(begin, end + 2 - begin);
  folder.configure("\"use_sliding_window\": false", "\"use_sliding_window\": true");
  folder.configure("\"sliding_window\": 0", "\"sliding_window\": 6");
  expect_written(folder, {layer_types("wfwf")});
  folder.configure("\"max_window_layers\": 28", "\"max_window_layers\": 2");
  expect_written(folder, {layer_types("wfff")});
}

TEST(Config, BiasesOfQwen2WithExpertsAreAChoice) {
  expect_written(HuggingFaceFolder("qwen2_moe"), {"\"qkv_bias\":true"});
  HuggingFaceFolder folder("qwen2_moe");
  folder.configure("\"use_sliding_window\"", "\"other\": 1, \"use_sliding_window\"");
  EXPECT_NE(written_again(folder, {"model.qkv_bias=false"}).find("\"qkv_bias\":false"), std::string::npos);
}

// Release 5 of transformers says of T5 1.1 that all is tied, and that the head is not scaled.
TEST(Config, T5OfBothReleasesIsRead) {
  HuggingFaceFolder again("t5");
  again.configure("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_EQ(options_of(again.write()), options_of(hugging_face("t5")));
  HuggingFaceFolder older("t5");
  older.configure("\"scale_decoder_outputs\": false", "\"other\": false");
  EXPECT_EQ(options_of(older.write()), options_of(hugging_face("t5")));
  older.configure("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_NE(refusal(older).find("'tie_word_embeddings' is not false"), std::string::npos) << refusal(older);
  again.configure("\"scale_decoder_outputs\": false", "\"scale_decoder_outputs\": true");
  EXPECT_NE(refusal(again).find("'tie_word_embeddings' is not false"), std::string::npos) << refusal(again);
}

TEST(Config, YarnMayCutAllPairsAtOnePlace) {
  HuggingFaceFolder folder("olmo2");
  folder.configure("\"beta_fast\": 4.0", "\"beta_fast\": 1.0");
  expect_written(folder, {"\"beta_slow\":1.0", "\"beta_fast\":1.0"});
  HuggingFaceFolder llama("llama");
  llama.configure("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0");
  EXPECT_THROW(written_again(llama), Error);
}

TEST(Config, WritesTablesRealsAndNulls) {
  const ConfigValues values{
      {{"a", std::int64_t{1}}, {"t.x", 8.0}, {"t.y", true}, {"l", std::vector<std::string>{"z"}}}, {"n"}};
  EXPECT_EQ(config_text({{{"r.a.x", 1.0}, {"r.a.y", 2.0}, {"r.b.x", 3.0}, {"s.x", 4.0}}, {}}),
            "{\"r\":{\"a\":{\"x\":1.0,\"y\":2.0},\"b\":{\"x\":3.0}},\"s\":{\"x\":4.0},"
            "\"bos_token_id\":null,\"eos_token_id\":null}\n");
  EXPECT_EQ(config_text(values),
            "{\"a\":1,\"t\":{\"x\":8.0,\"y\":true},\"l\":[\"z\"],\"n\":null,\"bos_token_id\":null,"
            "\"eos_token_id\":null}\n");
}

TEST(Config, RefusesByNameWhatTheModelDoesNotCompute) {
  const struct {
    const char* model;
    const char* text;
    const char* other;
    const char* reason;
  } cases[] = {
      {"llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"",
       "'rope_parameters.rope_type' is 'longrope'"},
      {"phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 2.0",
       "'rope_parameters.rope_type' is 'yarn'"},
      {"phi3_short", "\"original_max_position_embeddings\": 48,\n  \"pad", "\"pad",
       "'original_max_position_embeddings' is missing, which means 4096"},
      {"gpt_oss", "\"swiglu_limit\": 0.6", "\"swiglu_limit\": 0", "cannot read 'swiglu_limit' = 0"},
      {"gpt_oss", "\"sliding_window\": 5", "\"sliding_window\": null", "'sliding_window' is missing or null"},
      {"gpt_oss", "\"hidden_act\"", "\"quantization_config\": {\"quant_method\": \"awq\"}, \"hidden_act\"",
       "'quantization_config.quant_method' is 'awq'"},
      {"gemma", "\"head_dim\"", "\"final_logit_softcapping\": 30.0, \"head_dim\"",
       "'final_logit_softcapping' asks for logits that are bounded"},
      {"gemma", "\"head_dim\"", "\"attn_logit_softcapping\": 50.0, \"head_dim\"",
       "'attn_logit_softcapping' asks for scores that are bounded"},
      {"gemma2", "\"final_logit_softcapping\": 2.0", "\"final_logit_softcapping\": null",
       "'final_logit_softcapping' is missing or null"},
      {"gemma2", "\"attn_logit_softcapping\": 1.5", "\"attn_logit_softcapping\": 0",
       "'attn_logit_softcapping' is 0"},
      {"gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0",
       "'attn_logit_softcapping' asks for scores that are bounded"},
      {"gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
       "'use_bidirectional_attention' is true"},
      {"gemma3", "\"gelu_pytorch_tanh\"", "\"gelu\"", "'hidden_activation' is 'gelu'"},
      {"gemma3", "\"rope_theta\": 100.0,\n      \"rope_type\": \"default\"",
       "\"rope_theta\": 100.0, \"rope_type\": \"linear\", \"factor\": 2.0",
       "cannot read 'rope_parameters.sliding_attention.factor' = 2"},
      {"gemma3", "\"full_attention\",\n    \"sliding_attention\"", "\"full_attention\"",
       "'layer_types' lists 3 layers of 4"},
      {"qwen2_window", "\"use_sliding_window\": true", "\"use_sliding_window\": false",
       "'layer_types' has 'sliding_attention', and 'use_sliding_window' is not true"},
      {"qwen3", "\"full_attention\"", "\"linear_attention\"", "'layer_types' has 'linear_attention'"},
      {"granite", "\"attention_bias\": false", "\"attention_bias\": true", "'attention_bias' is true"},
      {"granite", "\"mlp_bias\": false", "\"mlp_bias\": true", "'mlp_bias' is true"},
      {"glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.2",
       "'partial_rotary_factor' is 0.2, and so turn 3 of a head's 16 channels"},
      {"minimax_m2", "\"rotary_dim\"", "\"shared_intermediate_size\": 8, \"rotary_dim\"",
       "cannot read 'shared_intermediate_size' = 8"},
      {"llama", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'hidden_act' is 'gelu'"},
      {"llama", "\"rope_theta\"", "\"partial_rotary_factor\": 0.5, \"rope_theta\"",
       "partial_rotary_factor' is 0.5"},
      {"llama", "\"head_dim\"", "\"quantization_config\": {}, \"head_dim\"", "'quantization_config'"},
      {"llama", "\"mlp_bias\"", "\"use_sliding_window\": true, \"mlp_bias\"", "'use_sliding_window' is true"},
      {"llama", "\"mlp_bias\"", "\"layer_types\": [\"sliding_attention\"], \"mlp_bias\"",
       "'layer_types' has 'sliding_attention'"},
      {"gpt2", "\"gelu_new\"", "\"relu\"", "'activation_function' is 'relu'"},
      {"gpt2", "\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true",
       "'scale_attn_by_inverse_layer_idx' is true"},
      {"gpt2", "\"n_head\": 4", "\"n_heads\": 4", "'n_head' is missing"},
      {"gpt2", "\"n_head\": 4", "\"n_head\": \"4\"", "'n_head' is not a whole number"},
      {"gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"mamba\"",
       "no model plugin reads a config.json of model_type 'mamba'"},
      {"gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"olmo\"", ", of which the nearest is 'olmo2'"},
      {"gemma3", "\"model_type\": \"gemma3_text\"",
       "\"model_type\": \"gemma3n\", \"text_config\": {\"model_type\": \"gemma3n_text\"}",
       "no model plugin reads a config.json of model_type 'gemma3n'"},
      {"internlm3", "\"attention_bias\": false", "\"qkv_bias\": true", "'qkv_bias' is true"},
      {"granite", "\"attention_multiplier\": 0.3", "\"attention_multiplier\": 0",
       "'attention_multiplier' is 0"},
      {"smollm3", "\"no_rope_layers\": [", "\"no_rope_layers\": [], \"other\": [",
       "'no_rope_layers' lists 0 layers of 3"},
      {"cwm", "\"rope_parameters\"", "\"other\"", "'rope_parameters' and 'rope_scaling' are missing"},
      {"solar_open", "\"n_group\"", "\"first_k_dense_replace\": 1, \"n_group\"",
       "cannot read 'first_k_dense_replace' = 1: in this family all layers have experts"},
      {"glm4_moe_lite", "\"dense\",", "\"sparse\", \"dense\",",
       "cannot read 'mlp_layer_types': this model has 2 layers"},
      {"gpt2", "\"model_type\"", "\"kind\"", "has no model_type"},
  };
  for (const auto& c : cases) {
    HuggingFaceFolder folder(c.model);
    folder.configure(c.text, c.other);
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(c.reason), std::string::npos) << "wanted: " << c.reason << "\ngot: " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_NE(refusal(HuggingFaceFolder("gpt2"), "llama")
                .find("is of model_type 'gpt2', and model plugin 'llama' reads llama,qwen2,"),
            std::string::npos)
      << refusal(HuggingFaceFolder("gpt2"), "llama");
}

TEST(Config, WhatAFamilysFileCannotSayIsRefused) {
  const struct {
    const char* family;
    const char* option;
    const char* reason;
  } cases[] = {
      {"llama", "window=8", "cannot write windows (model.window) to a config.json of model_type 'llama'"},
      {"mistral", "full_every=2", "(model.full_every)"},
      {"mistral", "window_from=1", "(model.window_from)"},
      {"gemma3", "query_scalar=4.5", "cannot write model.query_scalar as it is set"},
      {"mistral", "full_layers=[1]", "(model.full_layers)"},
      {"qwen3", "query_scalar=3", "(model.query_scalar)"},
      {"qwen3", "rope_base_window=10", "(model.rope_base_window)"},
      {"qwen3", "nope_every=2", "(model.nope_every)"},
      {"qwen3", "residual_scale=0.5", "(model.residual_scale)"},
      {"llama", "embedding_scale=2", "(model.embedding_scale)"},
      {"mistral", "logit_divisor=2", "(model.logit_divisor)"},
      {"mistral", "logit_softcap=2", "cannot write model.logit_softcap"},
      {"gemma2", "score_softcap=0", "cannot write model.score_softcap"},
      {"gemma3", "score_softcap=50", "cannot write model.score_softcap"},
      {"phi3", "rope_factor=4", "(model.rope_factor)"},
      {"llama", "rope_switch=4", "(model.rope_switch)"},
      {"olmo3", "rope_switch=4", "(model.rope_switch)"}};
  for (const auto& c : cases) {
    std::vector<std::string> sets = {"model.seq=8",
                                     "model.plugin=llama",
                                     "model.layers=2",
                                     "model.hidden=8",
                                     "model.heads=2",
                                     "model.ffn=8",
                                     "model.vocab=8",
                                     std::string("model.family=") + c.family,
                                     "model." + std::string(c.option)};
    if (std::string(c.option).find("window") != std::string::npos ||
        std::string(c.option).starts_with("full"))
      sets.emplace_back("model.window=8");
    if (std::string(c.option).starts_with("rope_switch"))
      sets.insert(sets.end(), {"model.rope_short=[1.0, 1.5]", "model.rope_long=[2.0, 3.0]"});
    const ModelProgram model = write_model(model_recipe(plugins(), sets), plugins());
    try {
      written_config(*model.model, model.context);
      ADD_FAILURE() << c.family << " " << c.option << " was written";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.reason), std::string::npos) << error.what();
    }
  }
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
  HuggingFaceFolder folder("gpt2");
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
  const std::string fetch =
      "prun loads nothing from a hub: fetch it first, as by `hf download meta-llama/Llama-3-8B --local-dir "
      "FOLDER`";
  EXPECT_NE(problem("meta-llama/Llama-3-8B").find(fetch), std::string::npos);
  try {
    model_recipe(plugins(), {"model.seq=8", "model.init=meta-llama/Llama-3-8B"});
    ADD_FAILURE() << "a folder that is not there gave a model";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("there is no folder 'meta-llama/Llama-3-8B'; " + fetch),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace prun::test::config_test
