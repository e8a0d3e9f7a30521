// Lists where the parameters are stored in a folder of Hugging Face's libraries. Queries, keys and values of
// a head group are together here and, but for Phi-3, in three tensors there; likewise both halves of the
// MLP's first projection are separate there.
#include "llama.hpp"

namespace prun {

void Llama::add_norms(const LayerRun& run, ForeignWeights& weights) const {
  const auto add = [&](const char* norm, const char* name, const char* dims = "") {
    weights.tensors.push_back({run.segment + "." + norm + ".gain",
                               std::string("model.layers.*.") + name + ".weight", dims, "", 0, 0, run.first});
  };
  const bool before = normed(NormPlace::before), after = normed(NormPlace::after);
  if (before) add("norm1", "input_layernorm");
  if (before) add("norm2", after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (after) add("norm1_after", "post_attention_layernorm");
  if (after) add("norm2_after", "post_feedforward_layernorm");
  if (family_.head_norm == HeadNorm::absent) return;
  const bool all = family_.head_norm == HeadNorm::all;
  add("q_norm", "self_attn.q_norm", all ? "norm_heads norm_queries head_dim" : "");
  add("k_norm", "self_attn.k_norm", all ? "norm_heads head_dim" : "");
}

void Llama::add_mlp(const LayerRun& run, ForeignWeights& weights) const {
  if (run.experts) return experts_.add_weights(family_, run.segment, run.first, weights);
  const auto add = [&](const char* parameter, const std::string& name, const char* dims = "",
                       const char* part = "", std::int64_t begin = 0, std::int64_t end = 0) {
    weights.tensors.push_back(
        {run.segment + "." + parameter, "model.layers.*." + name, dims, part, begin, end, run.first});
  };
  const bool fused = family_.fused_files;
  add("up.weight", fused ? "mlp.gate_up_proj.weight" : "mlp.gate_proj.weight", "gate ffn, hidden", "gate", 0,
      1);
  add("up.weight", fused ? "mlp.gate_up_proj.weight" : "mlp.up_proj.weight", "gate ffn, hidden", "gate", 1,
      2);
  add("down.weight", "mlp.down_proj.weight");
}

void Llama::add_layer(const LayerRun& run, ForeignWeights& weights) const {
  const auto add = [&](const char* parameter, const std::string& name, const char* dims = "",
                       const char* part = "", std::int64_t begin = 0, std::int64_t end = 0) {
    weights.tensors.push_back(
        {run.segment + "." + parameter, "model.layers.*." + name, dims, part, begin, end, run.first});
  };
  const auto add_packed = [&](const std::string& name, std::int64_t begin, std::int64_t end) {
    add("qkv.weight", name + ".weight", "heads packed head_dim, hidden", "packed", begin, end);
    if (family_.qkv_bias) add("qkv.bias", name + ".bias", "heads packed head_dim", "packed", begin, end);
  };
  if (latent_.present()) {
    latent_.add_weights(run.segment, run.first, weights);
    add_mlp(run, weights);
    return add_norms(run, weights);
  }
  const std::int64_t of_group = queries().extent;
  const bool fused = family_.fused_files;
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.q_proj", 0, of_group);
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.k_proj", of_group, of_group + 1);
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.v_proj", of_group + 1, of_group + 2);
  add("proj.weight", "self_attn.o_proj.weight", "hidden, heads queries head_dim");
  add_mlp(run, weights);
  add_norms(run, weights);
}

ForeignWeights Llama::foreign_weights() const {
  ForeignWeights weights{
      {"model.", ""},
      {{"embedding.token", "model.embed_tokens.weight"}, {"head.norm.gain", "model.norm.weight"}},
      {"*.rotary_emb.inv_freq"}};
  // Further tokens are predicted by layers behind the last one, which other programs leave out as well.
  if (family_.mtp) add_mtp(weights);
  if (family_.latent && mtp_.layers == 0)
    weights.ignored.push_back("model.layers." + std::to_string(layers_) + ".*");
  for (const LayerRun& run : runs()) add_layer(run, weights);
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
