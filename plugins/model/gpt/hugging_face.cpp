// Reads and writes GPT-2 as Hugging Face's libraries keep it.
#include "gpt.hpp"

namespace prun {

// Its dropout is a choice of the user, and no part of the model.
void Gpt::read_config(const Options& config, ConfigWriter& options) {
  expect_text(config, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  expect_flag(config, "scale_attn_weights", true);
  expect_flag(config, "scale_attn_by_inverse_layer_idx", false);
  expect_flag(config, "add_cross_attention", false);
  expect_absent(config, "quantization_config", "weights of few bits");
  const std::int64_t hidden = config.integer("n_embd");
  options.set("layers", config.integer("n_layer"));
  options.set("hidden", hidden);
  options.set("heads", config.integer("n_head"));
  options.set("ffn", config.has("n_inner") ? config.integer("n_inner") : 4 * hidden);
  options.set("vocab", config.integer("vocab_size"));
  SpecialTokens::read_config(config, options);
  options.set("positions", config.integer("n_positions"));
  options.set("tied", !config.has("tie_word_embeddings") || config.flag("tie_word_embeddings"));
  options.set("norm_eps", config.has("layer_norm_epsilon") ? config.number("layer_norm_epsilon") : 1e-5);
}

void Gpt::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", "gpt2");
  config.set("architectures", std::vector<std::string>{"GPT2LMHeadModel"});
  config.set("activation_function", "gelu_new");
  config.set("n_layer", layers_);
  config.set("n_embd", widths_.hidden.extent);
  config.set("n_head", widths_.heads.extent);
  config.set("n_inner", widths_.ffn.extent);
  config.set("vocab_size", widths_.vocab.extent);
  config.set("n_positions", positions_.rows(context).extent);
  config.set("tie_word_embeddings", tied_);
  config.set("layer_norm_epsilon", norm_.eps);
  config.set("embd_pdrop", dropout_.probability);
  config.set("resid_pdrop", dropout_.probability);
  config.set("attn_pdrop", attention_dropout_.probability);
  tokens_.write_config(config);
}

// In their files, matrices have their inputs first, and queries, keys and values of all heads follow each
// other.
ForeignWeights Gpt::foreign_weights() const {
  ForeignWeights weights{{"transformer.", ""}, {}, {"*.attn.bias", "*.attn.masked_bias"}};
  const WeightNames names(weights, "transformer.");
  names.add("embedding.token", "wte.weight");
  names.add("embedding.position", "wpe.weight");
  names.add_norm("block.norm1", "h.*.ln_1");
  names.add("block.qkv.weight", "h.*.attn.c_attn.weight", "hidden, packed heads head_dim");
  names.add("block.qkv.bias", "h.*.attn.c_attn.bias", "packed heads head_dim");
  names.add("block.proj.weight", "h.*.attn.c_proj.weight", "heads queries head_dim, hidden");
  names.add("block.proj.bias", "h.*.attn.c_proj.bias");
  names.add_norm("block.norm2", "h.*.ln_2");
  names.add("block.up.weight", "h.*.mlp.c_fc.weight", "hidden, ffn");
  names.add("block.up.bias", "h.*.mlp.c_fc.bias");
  names.add("block.down.weight", "h.*.mlp.c_proj.weight", "ffn, hidden");
  names.add("block.down.bias", "h.*.mlp.c_proj.bias");
  names.add_norm("head.norm", "ln_f");
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight=transformer.wte.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
