// Maps experts to the files of Hugging Face's libraries: each MLP is three tensors of its own there.
#include <algorithm>

#include "config_keys.hpp"
#include "experts.hpp"

namespace prun {
namespace {

const char* count_key(const Family& family) {
  switch (family.experts) {
    case ExpertKeys::mixtral:
    case ExpertKeys::gpt_oss:
    case ExpertKeys::minimax: return "num_local_experts";
    case ExpertKeys::deepseek2:
    case ExpertKeys::deepseek: return "n_routed_experts";
    default: return "num_experts";
  }
}

// Releases of transformers name the number of experts differently.
std::int64_t count_in(const Options& config, const Family& family) {
  for (const char* other : {"num_local_experts", "num_experts"})
    if (!config.has(count_key(family)) && config.has(other)) return config.integer(other);
  return config.integer(count_key(family));
}

bool has_own_width(const Family& family) { return family.experts == ExpertKeys::qwen || is_deepseek(family); }

// V2 has softmax, and groups that are chosen by their best expert.
void read_router_of_v2(const Options& config, ConfigWriter& options) {
  expect_text(config, "scoring_func", {"softmax"});
  expect_text(config, "topk_method", {"greedy", "group_limited_greedy"});
  expect_flag(config, "norm_topk_prob", false);
  if (!config.has("topk_method") || config.text("topk_method") == "greedy") return;
  options.set("router_groups", config.integer("n_group"));
  options.set("router_chosen_groups", config.integer("topk_group"));
  options.set("router_group_best", 1);
}

void read_router_of_v3(const Options& config, ConfigWriter& options) {
  expect_text(config, "scoring_func", {"sigmoid"});
  expect_text(config, "topk_method", {"noaux_tc"});
  options.set("router", "sigmoid");
  options.set("router_bias", true);
  options.set("router_groups", integer_or(config, "n_group", 1));
  options.set("router_chosen_groups", integer_or(config, "topk_group", 1));
}

// Transformers goes by the list, and GLM's class knows no number.
std::int64_t dense_first_listed(const Options& config, const Family& family, std::int64_t layers) {
  std::int64_t first =
      family.experts == ExpertKeys::exaone ? integer_or(config, "first_k_dense_replace", 1) : 1;
  if (config.has("mlp_layer_types")) {
    const std::vector<std::string> types = config.texts("mlp_layer_types");
    first = std::find(types.begin(), types.end(), "sparse") - types.begin();
    if (static_cast<std::int64_t>(types.size()) != layers ||
        std::count(types.begin(), types.end(), "sparse") != layers - first)
      throw_error(ErrorCode::bad_input, "cannot read 'mlp_layer_types': this model has ", layers,
                  " layers, of which the first are 'dense' and all later ones 'sparse'");
  }
  if (integer_or(config, "first_k_dense_replace", first) != first)
    throw_error(ErrorCode::bad_input,
                "cannot read 'first_k_dense_replace' = ", config.integer("first_k_dense_replace"),
                ": by 'mlp_layer_types' the first ", first,
                " layers are dense (one if it is missing); make both equal");
  return first;
}

void read_deepseek(const Options& config, const Family& family, std::int64_t width, ConfigWriter& options) {
  if (integer_or(config, "moe_layer_freq", 1) != 1)
    throw_error(ErrorCode::bad_input, "cannot read 'moe_layer_freq' = ", config.integer("moe_layer_freq"),
                ": this model has experts in every layer after the first dense ones");
  const std::int64_t layers = config.integer("num_hidden_layers");
  if (family.windows == WindowKeys::absent && !config.has("layer_types") && config.has("sliding_window") &&
      integer_or(config, "max_window_layers", 62) < layers)
    throw_error(
        ErrorCode::bad_input,
        "cannot read 'max_window_layers': this model has no window in some layers only in this family");
  if (family.all_sparse && integer_or(config, "first_k_dense_replace", 0) != 0)
    throw_error(ErrorCode::bad_input,
                "cannot read 'first_k_dense_replace' = ", config.integer("first_k_dense_replace"),
                ": in this family all layers have experts");
  options.set("shared_ffn", width * integer_or(config, shared_key(family), 0));
  options.set("dense_first", family.sparse_listed ? dense_first_listed(config, family, layers)
                                                  : integer_or(config, "first_k_dense_replace", 0));
  if (family.experts == ExpertKeys::deepseek2)
    read_router_of_v2(config, options);
  else
    read_router_of_v3(config, options);
  options.set("router_scale",
              config.has("routed_scaling_factor") ? config.number("routed_scaling_factor") : 1.0);
}

void read_minimax(const Options& config, ConfigWriter& options) {
  expect_text(config, "scoring_func", {"sigmoid"});
  expect_flag(config, "use_routing_bias", true);
  expect_flag(config, "use_qk_norm", true);
  expect_text(config, "qk_norm_type", {"per_layer"});
  if (integer_or(config, "shared_intermediate_size", 0) != 0)
    throw_error(ErrorCode::bad_input,
                "cannot read 'shared_intermediate_size' = ", config.integer("shared_intermediate_size"),
                ": this family has no shared expert");
  options.set("router", "sigmoid");
  options.set("router_bias", true);
}

void read_qwen(const Options& config, const Family& family, ConfigWriter& options) {
  if (family.shared_expert) {
    options.set("shared_ffn", config.integer("shared_expert_intermediate_size"));
    options.set("shared_gate", true);
  }
  if (family.all_sparse) return;
  options.set("sparse_every", integer_or(config, "decoder_sparse_step", 1));
  std::vector<std::int64_t> dense;
  if (config.has("mlp_only_layers"))
    for (const double layer : config.numbers("mlp_only_layers"))
      dense.push_back(static_cast<std::int64_t>(layer));
  if (!dense.empty()) options.set("dense_layers", dense);
}

}  // namespace

void ExpertLayers::read_config(const Options& config, const Family& family, ConfigWriter& options) {
  if (family.experts == ExpertKeys::absent ||
      (family.some_without && integer_or(config, "num_experts", 512) == 0))
    return;
  expect_absent(config, "clip_qkv", "queries, keys and values that are bounded");
  if (config.has("router_jitter_noise") && config.number("router_jitter_noise") != 0)
    throw_error(ErrorCode::bad_input,
                "cannot read 'router_jitter_noise' = ", config.number("router_jitter_noise"),
                ": this model's router adds no noise");
  const std::int64_t width =
      config.integer(has_own_width(family) ? "moe_intermediate_size" : "intermediate_size");
  options.set("experts", count_in(config, family));
  options.set("choices", config.integer("num_experts_per_tok"));
  options.set("expert_ffn", width);
  const bool always = family.experts == ExpertKeys::mixtral || family.experts == ExpertKeys::minimax ||
                      family.experts == ExpertKeys::gpt_oss;
  const bool said = config.has("norm_topk_prob");
  options.set("router_normalise", always || (said ? config.flag("norm_topk_prob") : family.normalised));
  if (is_deepseek(family)) read_deepseek(config, family, width, options);
  if (family.experts == ExpertKeys::qwen) read_qwen(config, family, options);
  if (family.experts == ExpertKeys::minimax) read_minimax(config, options);
  if (family.experts != ExpertKeys::gpt_oss) return;
  const double limit = number_or(config, "swiglu_limit", 7);
  if (!(limit > 0))
    throw_error(ErrorCode::bad_input, "cannot read 'swiglu_limit' = ", limit,
                ": a limit is a number above 0");
  options.set("expert_limit", limit);
  options.set("expert_alpha", number_or(config, "swiglu_alpha", 1.702));
}

std::int64_t ExpertLayers::file_width(const Family& family, std::int64_t ffn) const {
  return any() && !has_own_width(family) ? ffn_ : ffn;
}

void ExpertLayers::write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const {
  if ((family.experts != ExpertKeys::absent) != any() && !(family.some_without && !any()))
    throw_error(ErrorCode::unsupported, "cannot write a config.json of model_type '",
                std::string(family.model_type), "': such a model has ",
                any() ? "no experts; choose a model.family that has some"
                      : "experts; set model.experts, or choose another model.family");
  if (!any() && family.some_without) config.set(count_key(family), std::int64_t{0});
  if (!any()) return;
  config.set(count_key(family), experts_);
  config.set("num_experts_per_tok", router_.choices());
  if (has_own_width(family)) config.set("moe_intermediate_size", ffn_);
  sparse_.write_config(family, layers, config);
  router_.write_config(family, config);
  shared_.write_config(family, ffn_, config);
  if (!biased_) return;
  if (limit_ == 0) throw_no_key(family, "expert_limit");
  config.set("swiglu_limit", limit_);
  config.set("swiglu_alpha", alpha_);
}

// Gate and up take turns along the rows of a tensor that is stored the other way round.
void ExpertLayers::add_biased_weights(const LayerWeights& weights) const {
  weights.add("router.scores.bias", "mlp.router.bias");
  weights.add("experts.up.weight", "mlp.experts.gate_up_proj", "experts, hidden, ffn gate");
  weights.add("experts.up.bias", "mlp.experts.gate_up_proj_bias", "experts, ffn gate");
  weights.add("experts.down.weight", "mlp.experts.down_proj", "experts, ffn, hidden");
  weights.add("experts.down.bias", "mlp.experts.down_proj_bias");
}

void ExpertLayers::add_weights(const Family& family, const LayerWeights& weights) const {
  const ExpertNames names = ExpertNames::of(family);
  weights.add("router.weight", names.router + ".weight");
  if (router_.has_bias()) weights.add("router.bias", names.bias);
  if (biased_) {
    add_biased_weights(weights);
    return shared_.add_weights(names, weights);
  }
  const char *const up = "experts.up.weight", *const up_dims = "experts gate ffn, hidden";
  for (std::int64_t e = 0; e < experts_; ++e) {
    const std::string expert = names.expert + std::to_string(e);
    weights.add(up, expert + names.gate, up_dims, "experts", e, e + 1, {"gate", 0, 1});
    weights.add(up, expert + names.up, up_dims, "experts", e, e + 1, {"gate", 1, 2});
    weights.add("experts.down.weight", expert + names.down, "experts hidden, ffn", "experts", e, e + 1);
  }
  shared_.add_weights(names, weights);
}

}  // namespace prun
