// Reads and writes T5 1.1 as Hugging Face's libraries keep it: T5ForConditionalGeneration.
#include "t5.hpp"

namespace prun {
namespace {

// Release 5 of transformers writes that all are tied, and says otherwise that a head of its own is not
// scaled.
bool has_own_head(const Options& config) {
  if (config.has("scale_decoder_outputs")) return !config.flag("scale_decoder_outputs");
  return config.has("tie_word_embeddings") && !config.flag("tie_word_embeddings");
}

}  // namespace

// Its dropout is a choice of the user, and no part of the model; nor is the length of its inputs.
void T5::read_config(const Options& config, ConfigWriter& options) {
  if (!config.has("feed_forward_proj") || config.text("feed_forward_proj") != "gated-gelu")
    throw_error(ErrorCode::bad_input,
                "'feed_forward_proj' is not 'gated-gelu', and this model is T5 1.1, which has that alone");
  if (!has_own_head(config))
    throw_error(ErrorCode::bad_input,
                "'tie_word_embeddings' is not false, and this model is T5 1.1, whose head is its own");
  expect_absent(config, "quantization_config", "weights of few bits");
  const std::int64_t layers = config.integer("num_layers");
  options.set("layers", layers);
  options.set("decoder_layers",
              config.has("num_decoder_layers") ? config.integer("num_decoder_layers") : layers);
  options.set("hidden", config.integer("d_model"));
  options.set("heads", config.integer("num_heads"));
  options.set("head_dim", config.integer("d_kv"));
  options.set("ffn", config.integer("d_ff"));
  options.set("vocab", config.integer("vocab_size"));
  SpecialTokens::read_config(config, options);
  if (config.has("decoder_start_token_id"))
    options.set("start_token", config.integer("decoder_start_token_id"));
  options.set("buckets", config.integer("relative_attention_num_buckets"));
  options.set("distance", config.has("relative_attention_max_distance")
                              ? config.integer("relative_attention_max_distance")
                              : std::int64_t{128});
  options.set("norm_eps", config.has("layer_norm_epsilon") ? config.number("layer_norm_epsilon") : 1e-6);
}

void T5::write_config(const ModelContext&, ConfigWriter& config) const {
  config.set("model_type", "t5");
  config.set("architectures", std::vector<std::string>{"T5ForConditionalGeneration"});
  config.set("feed_forward_proj", "gated-gelu");
  config.set("is_encoder_decoder", true);
  config.set("num_layers", layers_);
  config.set("num_decoder_layers", decoder_layers_);
  config.set("d_model", hidden_.extent);
  config.set("num_heads", attention_.heads.extent);
  config.set("d_kv", attention_.head_dim.extent);
  config.set("d_ff", ffn_.extent);
  config.set("vocab_size", vocab_.extent);
  config.set("relative_attention_num_buckets", attention_.buckets.extent);
  config.set("relative_attention_max_distance", attention_.distance);
  config.set("tie_word_embeddings", false);
  config.set("layer_norm_epsilon", eps_);
  config.set("dropout_rate", dropout_.probability);
  config.set("decoder_start_token_id", start_);
  tokens_.write_config(config);
}

ForeignWeights T5::foreign_weights() const {
  ForeignWeights weights{
      {}, {}, {"encoder.embed_tokens.weight=shared.weight", "decoder.embed_tokens.weight=shared.weight"}};
  const auto add = [&](const std::string& parameter, const std::string& name, const char* dims = "",
                       const char* part = "", std::int64_t begin = 0, std::int64_t end = 0) {
    weights.tensors.push_back({parameter, name, dims, part, begin, end});
  };
  const auto add_self = [&](const std::string& half) {
    const std::string there = half + ".block.*.layer.0.";
    for (const auto& [letter, slot] : {std::pair("q", 0), {"k", 1}, {"v", 2}})
      add(half + ".qkv.weight", there + "SelfAttention." + letter + ".weight",
          "heads packed head_dim, hidden", "packed", slot, slot + 1);
    add(half + ".proj.weight", there + "SelfAttention.o.weight", "hidden, heads queries head_dim");
    add(half + ".norm1.gain", there + "layer_norm.weight");
  };
  const auto add_mlp = [&](const std::string& half, const std::string& layer) {
    const std::string there = half + ".block.*.layer." + layer;
    add(half + ".up.weight", there + ".DenseReluDense.wi_0.weight", "gate ffn, hidden", "gate", 0, 1);
    add(half + ".up.weight", there + ".DenseReluDense.wi_1.weight", "gate ffn, hidden", "gate", 1, 2);
    add(half + ".down.weight", there + ".DenseReluDense.wo.weight");
    add(half + ".norm2.gain", there + ".layer_norm.weight");
  };
  const std::string table = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                    across = "decoder.block.*.layer.1.";
  add("embedding.token", "shared.weight");
  add("embedding.distances", "encoder" + table, "buckets, heads");
  add_self("encoder");
  add_mlp("encoder", "1");
  add("bridge.norm.gain", "encoder.final_layer_norm.weight");
  add("bridge.distances", "decoder" + table, "buckets, heads");
  add_self("decoder");
  add("decoder.across.q", across + "EncDecAttention.q.weight", "heads queries head_dim, hidden");
  add("decoder.across.k", across + "EncDecAttention.k.weight", "heads head_dim, hidden");
  add("decoder.across.v", across + "EncDecAttention.v.weight", "heads head_dim, hidden");
  add("decoder.across.proj", across + "EncDecAttention.o.weight", "hidden, heads queries head_dim");
  add("decoder.norm_across.gain", across + "layer_norm.weight");
  add_mlp("decoder", "2");
  add("head.norm.gain", "decoder.final_layer_norm.weight");
  add("head.weight", "lm_head.weight");
  return weights;
}

}  // namespace prun
