// Reads a config.json of Hugging Face's libraries as options of this model.
#include <vector>

#include "config_keys.hpp"
#include "llama.hpp"

namespace prun {
namespace {

// Returns what the file says or, where files of the family may leave it out, that.
std::int64_t integer_or_said(const Options& config, const char* key, std::int64_t otherwise) {
  return otherwise == 0 ? config.integer(key) : integer_or(config, key, otherwise);
}

void expect_activation(const Options& config, const Family& family) {
  const std::vector<std::string> by_tanh = {"gelu_pytorch_tanh"}, also = {"gelu_pytorch_tanh", "gelu"};
  if (family.gelu_short) expect_text(config, "hidden_activation", by_tanh);
  expect_text(config, family.activation_key,
              !family.gelu        ? std::vector<std::string>{"silu", "swish"}
              : family.gelu_short ? also
                                  : by_tanh);
}

void refuse(const Options& config, const Family& family) {
  for (const char* biases : {"attention_bias", "attention_out_bias", "mlp_bias", "use_bias"})
    if (family.qkv_key != biases && family.out_key != biases && family.mlp_key != biases)
      expect_flag(config, biases, false);
  if (family.architecture == "LlamaForCausalLM")  // as InternLM3 says the same
    for (const char* biases : {"qkv_bias", "bias"}) expect_flag(config, biases, false);
  expect_activation(config, family);
  expect_flag(config, "use_bidirectional_attention", false);
  if (family.experts == ExpertKeys::gpt_oss)
    expect_text(config, "quantization_config.quant_method", {"mxfp4"});
  else
    expect_absent(config, "quantization_config", "weights of few bits");
}

// Writes the options of Granite's factors. Scores are multiplied by one here, and divided by a root there.
void read_multipliers(const Options& config, ConfigWriter& options) {
  options.set("embedding_scale", number_or(config, "embedding_multiplier", 1));
  options.set("residual_scale", number_or(config, "residual_multiplier", 1));
  options.set("logit_divisor", number_or(config, "logits_scaling", 1));
  const double scores = number_or(config, "attention_multiplier", 1);
  if (!(scores > 0))
    throw_error(ErrorCode::bad_input, "'attention_multiplier' is ", scores,
                ", and this model multiplies scores by a number above 0");
  options.set("query_scalar", 1 / (scores * scores));
}

// Writes the options of what bounds scores and logits.
void read_softcaps(const Options& config, const Family& family, ConfigWriter& options) {
  const struct {
    const char *key, *option, *meaning;
  } caps[] = {{"attn_logit_softcapping", "score_softcap", "scores that are bounded"},
              {"final_logit_softcapping", "logit_softcap", "logits that are bounded"}};
  for (const auto& cap : caps) {
    const bool known =
        family.softcaps == SoftcapKeys::must || (family.softcaps == SoftcapKeys::logits && &cap == &caps[1]);
    if (!known) expect_absent(config, cap.key, cap.meaning);
    if (!config.has(cap.key)) {
      if (family.softcaps == SoftcapKeys::must)
        throw_error(ErrorCode::bad_input, "'", cap.key, "' is missing or null, and files of model_type '",
                    family.model_type, "' that lack it have a number all the same; write it");
      continue;
    }
    const double bound = config.number(cap.key);
    if (!(bound > 0))
      throw_error(ErrorCode::bad_input, "'", cap.key, "' is ", bound, ", and a bound is a number above 0");
    options.set(cap.option, bound);
  }
}

}  // namespace

void Llama::read_config(const Options& config, ConfigWriter& options) {
  const Family& family = family_read(config.text("model_type"));
  refuse(config, family);
  const std::int64_t layers = config.integer("num_hidden_layers");
  options.set("layers", layers);
  const std::int64_t hidden = config.integer("hidden_size"),
                     heads = integer_or_said(config, "num_attention_heads", family.heads);
  options.set("hidden", hidden);
  options.set("heads", heads);
  options.set("kv_heads",
              integer_or(config, "num_key_value_heads", family.kv_heads ? family.kv_heads : heads));
  const std::int64_t head_dim = integer_or(config, "head_dim",
                                           family.head_dim ? family.head_dim
                                           : heads > 0     ? hidden / heads
                                                           : 0);
  if (family.latent)
    LatentAttention::read_config(config, options);
  else
    options.set("head_dim", head_dim);
  // Where all layers have experts, files may lack the width of an MLP.
  const bool sparse = (is_deepseek(family) || family.all_sparse) && !config.has("intermediate_size");
  options.set("ffn", config.integer(sparse ? "moe_intermediate_size" : "intermediate_size"));
  ExpertLayers::read_config(config, family, options);
  options.set("vocab", integer_or_said(config, "vocab_size", family.vocab));
  SpecialTokens::read_config(config, options);
  options.set("positions", integer_or(config, "max_position_embeddings", 0));
  options.set("tied", config.has("tie_word_embeddings") ? config.flag("tie_word_embeddings") : family.tied);
  const auto set_flag = [&](const char* option, std::string_view key, bool otherwise) {
    const bool said = !key.empty() && config.has(key);
    options.set(option, said ? config.flag(key) : otherwise);
  };
  set_flag("qkv_bias", family.qkv_key, family.biases.qkv);
  if (!family.out_key.empty()) set_flag("out_bias", family.out_key, family.biases.out);
  if (!family.mlp_key.empty()) set_flag("mlp_bias", family.mlp_key, false);
  if (!family.head_norm_key.empty()) set_flag("head_norm", family.head_norm_key, false);
  options.set("norm_eps", config.has("rms_norm_eps") ? config.number("rms_norm_eps") : family.eps);
  if (family.option != "llama") options.set("family", std::string(family.option));
  if (family.multipliers) read_multipliers(config, options);
  if (family.scalar_said) {
    const double scalar = config.has("query_pre_attn_scalar") ? config.number("query_pre_attn_scalar") : 256;
    if (scalar != static_cast<double>(head_dim)) options.set("query_scalar", scalar);
  }
  read_softcaps(config, family, options);
  DeltaRuleLayers::read_config(config, family, options);
  const WindowedLayers windows = WindowedLayers::read_config(config, family, layers);
  windows.write_options(options);
  UnturnedLayers::read_config(config, family, windows, layers).write_options(options);
  RopeConfig rope = read_rope(config, family);
  rope.rope.channels = read_rope_channels(config, family, head_dim);
  if (windows.window == 0) rope.window_base = 0;
  write_rope_options(rope, family, options);
}

}  // namespace prun
