// Writes this model's config.json, as releases of transformers before 5 write it, which later ones read, and
// lists where the parameters are stored in a folder of Hugging Face's libraries.
#include "llama.hpp"

namespace prun {

void Llama::write_config(const ModelContext& context, ConfigWriter& config) const {
  const DecoderBlock& block = block_;
  const GroupedAttention& attention = block.attention;
  config.set("model_type", std::string(family_.model_type));
  config.set("architectures", std::vector<std::string>{std::string(family_.architecture)});
  config.set(family_.gelu ? "hidden_activation" : "hidden_act", family_.gelu ? "gelu_pytorch_tanh" : "silu");
  config.set("num_hidden_layers", layers_);
  config.set("hidden_size", block.stream.hidden.extent);
  config.set("num_attention_heads", attention.heads);
  config.set("num_key_value_heads", attention.groups.extent);
  block.latent.write_config(family_, attention.head_dim, config);
  if (!block.latent.present()) config.set("head_dim", attention.head_dim.extent);
  config.set("intermediate_size", block.experts.file_width(family_, block.mlp.ffn.extent));
  block.experts.write_config(family_, layers_, config);
  config.set("vocab_size", vocab_.extent);
  config.set("max_position_embeddings", positions_ ? positions_ : context.seq);
  config.set("tie_word_embeddings", tied_);
  config.set("rms_norm_eps", block.stream.eps);
  block.stream.tokens.write_config(config);
  if (family_.bias_said) config.set("qkv_bias", family_.qkv_bias);
  attention.write_query_scalar(family_, config);
  RopeConfig rope = block.rope;
  if (rope.window_base != 0 && !family_.base_by_kind)
    throw_no_key(family_, "rope_base_window", "a base of windowed layers");
  if (rope.rope.factor != 1 && !family_.slowed)
    throw_no_key(family_, "rope_factor", "positions that turn slower");
  block.windows.write_config(family_, layers_, config);
  mtp_.write_config(family_, config);
  if (family_.base_by_kind && rope.window_base == 0) rope.window_base = rope.rope.base;
  write_rope_config(rope, config);
}

ForeignWeights Llama::foreign_weights() const {
  ForeignWeights weights{
      {"model.", ""},
      {{"embedding.token", "model.embed_tokens.weight"}, {"head.norm.gain", "model.norm.weight"}},
      {"*.rotary_emb.inv_freq"}};
  // Further tokens are predicted by layers behind the last one, which other programs leave out as well.
  if (family_.mtp) mtp_.add_weights(block_, weights);
  if (family_.latent && !mtp_.any())
    weights.ignored.push_back("model.layers." + std::to_string(layers_) + ".*");
  for (const LayerRun& run : runs()) block_.add_weights(run.kind, {weights, run.segment, run.first});
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight=model.embed_tokens.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
