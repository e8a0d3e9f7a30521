// Writes this model's config.json, as releases of transformers before 5 write it, which later ones read.
#include "llama.hpp"

namespace prun {
namespace {

[[noreturn]] void refuse(const Family& family, const char* option, const char* what) {
  throw_error(ErrorCode::unsupported, "a config.json of model_type '", std::string(family.model_type),
              "' has no key for ", what, " (model.", option,
              "); leave it out, or choose another model.family");
}

}  // namespace

void Llama::write_windows(ConfigWriter& config) const {
  const bool some = windows_.window > 0;
  if (some && family_.windows == WindowKeys::absent) refuse(family_, "window", "windows");
  if (family_.windows != WindowKeys::turns && windows_.full_every != 0)
    refuse(family_, "full_every", "layers in turn");
  if (family_.windows != WindowKeys::late && windows_.from != 0)
    refuse(family_, "window_from", "a first layer of windows");
  if (family_.windows == WindowKeys::late) {
    config.set("use_sliding_window", some);
    config.set("max_window_layers", some ? windows_.from : layers_);
  }
  if (some) config.set("sliding_window", windows_.window);
  if (family_.windows != WindowKeys::turns) return;
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < layers_; ++layer)
    types.emplace_back(windows_.has(layer) ? "sliding_attention" : "full_attention");
  config.set("layer_types", types);
  if (windows_.full_every != 0) config.set("sliding_window_pattern", windows_.full_every);
}

void Llama::write_mtp(ConfigWriter& config) const {
  if (mtp_.layers > 0 && !family_.mtp) refuse(family_, "mtp_layers", "modules that predict further tokens");
  if (mtp_.layers > 0) config.set("num_nextn_predict_layers", mtp_.layers);
}

void Llama::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", std::string(family_.model_type));
  config.set("architectures", std::vector<std::string>{std::string(family_.architecture)});
  config.set(family_.gelu ? "hidden_activation" : "hidden_act", family_.gelu ? "gelu_pytorch_tanh" : "silu");
  config.set("num_hidden_layers", layers_);
  config.set("hidden_size", hidden_.extent);
  config.set("num_attention_heads", heads_);
  config.set("num_key_value_heads", groups_.extent);
  latent_.write_config(family_, head_dim_, config);
  if (!latent_.present()) config.set("head_dim", head_dim_.extent);
  config.set("intermediate_size", experts_.file_width(family_, ffn_.extent));
  experts_.write_config(family_, layers_, config);
  config.set("vocab_size", vocab_.extent);
  config.set("max_position_embeddings", positions_ ? positions_ : context.seq);
  config.set("tie_word_embeddings", tied_);
  config.set("rms_norm_eps", eps_);
  if (family_.scaled_embedding)
    config.set("query_pre_attn_scalar",
               query_scalar_ ? query_scalar_ : static_cast<double>(head_dim_.extent));
  else if (query_scalar_ != 0 && query_scalar_ != static_cast<double>(head_dim_.extent))
    refuse(family_, "query_scalar", "what scores are divided by");
  if (rope_base_window_ != 0 && !family_.base_by_kind)
    refuse(family_, "rope_base_window", "a base of windowed layers");
  if (rope_.factor != 1 && !family_.slowed) refuse(family_, "rope_factor", "positions that turn slower");
  write_windows(config);
  write_mtp(config);
  const double window_base = rope_base_window_ != 0 ? rope_base_window_ : rope_.base;
  write_rope_config({rope_, family_.base_by_kind ? window_base : 0}, config);
}

}  // namespace prun
