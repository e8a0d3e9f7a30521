// Reads a config.json of Hugging Face's libraries as options of this model.
#include <vector>

#include "config_keys.hpp"
#include "llama.hpp"

namespace prun {
namespace {

void refuse(const Options& config, const Family& family) {
  expect_flag(config, "attention_bias", false);
  expect_text(config, family.gelu ? "hidden_activation" : "hidden_act",
              family.gelu ? std::vector<std::string>{"gelu_pytorch_tanh"}
                          : std::vector<std::string>{"silu", "swish"});
  expect_flag(config, "mlp_bias", false);
  expect_flag(config, "use_bidirectional_attention", false);
  expect_absent(config, "final_logit_softcapping", "logits that are bounded");
  expect_absent(config, "attn_logit_softcapping", "scores that are bounded");
  expect_absent(config, "quantization_config", "weights of few bits");
}

}  // namespace

void Llama::read_config(const Options& config, ConfigWriter& options) {
  const Family& family = family_read(config.text("model_type"));
  refuse(config, family);
  const std::int64_t layers = config.integer("num_hidden_layers");
  options.set("layers", layers);
  const std::int64_t hidden = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
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
  options.set("ffn", config.integer("intermediate_size"));
  ExpertLayers::read_config(config, family, options);
  options.set("vocab", config.integer("vocab_size"));
  SpecialTokens::read_config(config, options);
  options.set("positions", integer_or(config, "max_position_embeddings", 0));
  options.set("tied", config.has("tie_word_embeddings") ? config.flag("tie_word_embeddings") : family.tied);
  const bool says_bias = family.bias_said && config.has("qkv_bias");
  options.set("qkv_bias", says_bias ? config.flag("qkv_bias") : family.qkv_bias);
  options.set("norm_eps", config.has("rms_norm_eps") ? config.number("rms_norm_eps") : family.eps);
  if (family.option != "llama") options.set("family", std::string(family.option));
  if (family.scaled_embedding) {
    const double scalar = config.has("query_pre_attn_scalar") ? config.number("query_pre_attn_scalar") : 256;
    if (scalar != static_cast<double>(head_dim)) options.set("query_scalar", scalar);
  }
  const WindowedLayers windows = WindowedLayers::read_config(config, family, layers);
  windows.write_options(options);
  RopeConfig rope = read_rope(config, family);
  if (windows.window == 0) rope.window_base = 0;
  write_rope_options(rope, family, options);
}

}  // namespace prun
