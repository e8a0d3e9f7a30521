// Writes this model's config.json, as releases of transformers before 5 write it, which later ones read, and
// lists where the parameters are stored in a folder of Hugging Face's libraries.
#include <map>

#include "llama.hpp"

namespace prun {

void Llama::write_config(const ModelContext& context, ConfigWriter& config) const {
  const DecoderBlock& block = block_;
  const GroupedAttention& attention = block.attention;
  config.set("model_type", std::string(family_.model_type));
  config.set("architectures", std::vector<std::string>{std::string(family_.architecture)});
  config.set(family_.activation_key, family_.gelu ? "gelu_pytorch_tanh" : "silu");
  config.set("num_hidden_layers", layers_);
  config.set("hidden_size", block.stream.hidden.extent);
  config.set("num_attention_heads", attention.heads);
  config.set("num_key_value_heads", attention.groups.extent);
  block.latent.write_config(family_, attention.head_dim, config);
  if (!block.latent.present()) config.set("head_dim", attention.head_dim.extent);
  config.set("intermediate_size", block.experts.file_width(family_, block.mlp.ffn.extent));
  block.experts.write_config(family_, layers_, config);
  config.set("vocab_size", vocab_.extent);
  const std::int64_t positions = positions_ ? positions_ : context.seq;
  config.set("max_position_embeddings", positions);
  config.set("tie_word_embeddings", tied_);
  config.set("rms_norm_eps", block.stream.eps);
  block.stream.tokens.write_config(config);
  // One key may state several of these, which are alike then.
  const std::map<std::string_view, bool> biases = {{family_.qkv_key, family_.biases.qkv},
                                                   {family_.out_key, family_.biases.out},
                                                   {family_.mlp_key, family_.biases.mlp}};
  for (const auto& [key, present] : biases)
    if (!key.empty()) config.set(key, present);
  if (!family_.head_norm_key.empty())
    config.set(family_.head_norm_key, family_.head_norm != HeadNorm::absent);
  attention.write_query_scalar(family_, config);
  const auto write_softcap = [&](const char* key, const char* option, double bound, SoftcapKeys least) {
    if (bound != 0 ? family_.softcaps < least : family_.softcaps == SoftcapKeys::must)
      throw_no_key(family_, option);
    if (bound != 0) config.set(key, bound);
  };
  write_softcap("attn_logit_softcapping", "score_softcap", attention.softcap, SoftcapKeys::must);
  write_softcap("final_logit_softcapping", "logit_softcap", logit_softcap_, SoftcapKeys::logits);
  block.stream.write_scales(config);
  if (family_.multipliers)
    config.set("logits_scaling", logit_divisor_);
  else if (logit_divisor_ != 1)
    throw_no_key(family_, "logit_divisor", "logits that are divided");
  block.windows.write_config(family_, layers_, config);
  block.delta.write_config(family_, config);
  block.unturned.write_config(family_, block.windows, layers_, config);
  mtp_.write_config(family_, config);
  write_rope_config(block.rope, family_, positions, config);
  write_rope_channels(block.rope.rope.channels, family_, attention.head_dim.extent, config);
}

ForeignWeights Llama::foreign_weights() const {
  ForeignWeights weights{
      {"model.", ""},
      {{"embedding.token", "model.embed_tokens.weight"}, {"head.norm.gain", "model.norm.weight"}},
      {"*.rotary_emb.inv_freq"}};
  // Further tokens are predicted by layers behind the last one, which other programs leave out as well.
  if (family_.mtp) mtp_.add_weights(block_, weights);
  if ((family_.latent || family_.mtp_left_out) && !mtp_.any())
    weights.ignored.push_back("model.layers." + std::to_string(layers_) + ".*");
  if (family_.mtp_tensors) weights.ignored.emplace_back("mtp.*");
  for (const LayerRun& run : runs()) block_.add_weights(run.kind, {weights, run.segment, run.first});
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight=model.embed_tokens.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
