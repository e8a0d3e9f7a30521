#include "experts.hpp"

#include <algorithm>
#include <cmath>

#include "config_keys.hpp"

namespace prun {

// ------------------------------------------------------------------- expert router

ExpertRouter::ExpertRouter(const Options& options)
    : experts_(options.integer("experts")),
      choices_(options.integer("choices")),
      sigmoid_(options.text("router") == "sigmoid"),
      normalise_(options.flag("router_normalise")),
      bias_(options.flag("router_bias")),
      groups_(options.integer("router_groups")),
      chosen_groups_(options.integer("router_chosen_groups")),
      group_best_(options.integer("router_group_best")),
      scale_(options.number("router_scale")),
      bias_rate_(options.number("router_bias_rate")),
      balance_(options.number("balance")),
      z_(options.number("router_z")) {}

void ExpertRouter::check_groups() const {
  if (groups_ > 1 && (experts_ % groups_ != 0 || choices_ > chosen_groups_ * (experts_ / groups_)))
    throw_error(ErrorCode::bad_input, "cannot choose ", choices_, " of ", experts_,
                " experts with model.router_groups = ", groups_,
                " and router_chosen_groups = ", chosen_groups_,
                "; make experts a multiple of the groups and choose more of them");
}

ChosenExperts ExpertRouter::build(const SegmentPart& s, const Dim& hidden, Id x, bool biased) const {
  const Dim routes{"routes", experts_};
  const Id weight = s.weight("router.weight", {routes, hidden});
  const Id logits =
      s.op("router", {x, weight, biased ? s.vector("router.scores.bias", {routes}, zeros()) : none});
  const Id bias = bias_ ? s.untrained("router.bias", {routes}) : none;
  const std::vector<Id> chosen = s.ops("route", {logits, bias}, 2,
                                       {{"choices", static_cast<double>(choices_)},
                                        {"sigmoid", sigmoid_ ? 1.0 : 0.0},
                                        {"normalise", normalise_ ? 1.0 : 0.0},
                                        {"groups", static_cast<double>(groups_)},
                                        {"chosen_groups", static_cast<double>(chosen_groups_)},
                                        {"group_best", static_cast<double>(group_best_)},
                                        {"scale", scale_}});
  balance(s, logits, chosen[0], bias);
  return {chosen[0], chosen[1]};
}

// Choices are counted whether or not anything follows from them.
void ExpertRouter::balance(const SegmentPart& s, Id logits, Id index, Id bias) const {
  const bool costs = balance_ != 0 || z_ != 0;
  const Id counts = s.tally("choices", {{"routes", experts_}}),
           losses = costs ? s.tally("uneven", {{"loss", 2}}) : none;
  s.ops("balance", {costs ? logits : none, index, s.targets(), s.runtime("inv_sequences"), counts, losses}, 0,
        {{"sigmoid", sigmoid_ ? 1.0 : 0.0}, {"coefficient", balance_}, {"z", z_}});
  if (bias != none && bias_rate_ != 0)
    s.insert(FunctionKind::update, none, "steer", {counts, s.runtime("keep"), bias}, 0,
             {{"rate", bias_rate_}});
}

void ExpertRouter::write_config(const Family& family, ConfigWriter& config) const {
  const bool third = has_sigmoid(family), second = family.experts == ExpertKeys::deepseek2;
  if (sigmoid_ != third) throw_no_key(family, "router");
  if (bias_ != third) throw_no_key(family, "router_bias");
  const bool minimax = family.experts == ExpertKeys::minimax;
  if (family.experts == ExpertKeys::mixtral || family.experts == ExpertKeys::gpt_oss || minimax || second) {
    if (normalise_ == second) throw_no_key(family, "router_normalise");
  } else if (family.experts == ExpertKeys::qwen && family.all_sparse) {
    if (!normalise_) throw_no_key(family, "router_normalise");
  } else {
    config.set("norm_topk_prob", normalise_);
  }
  if (!is_deepseek(family)) {
    if (groups_ != 1) throw_no_key(family, "router_groups");
    if (scale_ != 1) throw_no_key(family, "router_scale");
    return;
  }
  if (groups_ > 1 && group_best_ != (second ? 1 : 2)) throw_no_key(family, "router_group_best");
  if (second) config.set("topk_method", groups_ > 1 ? "group_limited_greedy" : "greedy");
  config.set("n_group", groups_);
  config.set("topk_group", chosen_groups_);
  config.set("routed_scaling_factor", scale_);
}

// ------------------------------------------------------------------- expert capacity

void ExpertCapacity::check(const ExpertRouter& router) const {
  if (!limited() && first_come_)
    throw_error(ErrorCode::bad_input,
                "cannot apply model.capacity_by without a capacity; set model.capacity");
  if (limited() && !first_come_ && router.weighs_alike())
    throw_error(
        ErrorCode::bad_input,
        "cannot apply model.capacity by weight: with model.choices = 1 and router_normalise = true all "
        "weights are equal; set model.capacity_by = \"position\", or router_normalise = false");
}

// A product that is a whole number but for its rounding must not be rounded up.
Id ExpertCapacity::build(const SegmentPart& s, std::int64_t seq, std::int64_t choices,
                         const ChosenExperts& chosen) const {
  const double mean = static_cast<double>(seq * choices) / static_cast<double>(experts_),
               most = std::min(std::ceil(capacity_ * mean * (1 - 1e-12)), static_cast<double>(seq));
  const Id kept = s.op("cap_choices", {chosen.index, first_come_ ? none : chosen.weight},
                       {{"most", most}, {"experts", static_cast<double>(experts_)}});
  s.ops("count_dropped", {kept, s.targets(), s.tally("dropped", {{"all", 1}})}, 0);
  return kept;
}

// ------------------------------------------------------------------- shared expert

void SharedExpert::check() const {
  if (gate && !present())
    throw_error(ErrorCode::bad_input, "model.shared_gate is of a shared expert; set model.shared_ffn");
}

Id SharedExpert::build(const SegmentPart& s, const Dim& hidden, Id x) const {
  const Dim halves{"gate", 2}, width{"ffn", ffn}, one{"one", 1};
  const Id up = s.op("linear", {x, s.weight("shared.up.weight", {halves, width, hidden}), none});
  const Id y = s.op("linear", {s.op("swiglu", {up}), s.weight("shared.down.weight", {hidden, width}), none});
  if (!gate) return y;
  return s.op("sigmoid_gate", {y, s.op("linear", {x, s.weight("shared.gate.weight", {one, hidden}), none})});
}

void SharedExpert::write_config(const Family& family, std::int64_t expert_ffn, ConfigWriter& config) const {
  if (gate != family.shared_expert) throw_no_key(family, "shared_gate");
  if (family.shared_expert) {
    config.set("shared_expert_intermediate_size", ffn);
  } else if (is_deepseek(family)) {
    if (ffn % expert_ffn != 0) throw_no_key(family, "shared_ffn");
    config.set(shared_key(family), ffn / expert_ffn);
  } else if (present()) {
    throw_no_key(family, "shared_ffn");
  }
}

void SharedExpert::add_weights(const ExpertNames& names, const LayerWeights& weights) const {
  if (!present()) return;
  weights.add("shared.up.weight", names.shared + names.gate, "gate ffn, hidden", "gate", 0, 1);
  weights.add("shared.up.weight", names.shared + names.up, "gate ffn, hidden", "gate", 1, 2);
  weights.add("shared.down.weight", names.shared + names.down);
  if (gate) weights.add("shared.gate.weight", names.shared + "_gate.weight");
}

// ------------------------------------------------------------------- sparse layers

SparseLayers::SparseLayers(const Options& options)
    : dense_first(options.integer("dense_first")), every(options.integer("sparse_every")) {
  for (const double layer : options.numbers("dense_layers")) dense.push_back(std::llround(layer));
}

bool SparseLayers::has(std::int64_t layer) const {
  return layer >= dense_first && (layer + 1) % every == 0 &&
         std::find(dense.begin(), dense.end(), layer) == dense.end();
}

void SparseLayers::write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const {
  const bool qwen = family.experts == ExpertKeys::qwen && !family.all_sparse;
  if (dense_first != 0 && !qwen && (!is_deepseek(family) || family.all_sparse))
    throw_no_key(family, "dense_first");
  if (every != 1 && !qwen) throw_no_key(family, "sparse_every");
  if (!dense.empty() && !qwen) throw_no_key(family, "dense_layers");
  if (is_deepseek(family)) config.set("first_k_dense_replace", dense_first);
  if (family.sparse_listed) {
    std::vector<std::string> types;
    for (std::int64_t layer = 0; layer < layers; ++layer) types.emplace_back(has(layer) ? "sparse" : "dense");
    config.set("mlp_layer_types", types);
  }
  if (!qwen) return;
  config.set("decoder_sparse_step", every);
  std::vector<std::int64_t> listed;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (!has(layer) && (layer + 1) % every == 0) listed.push_back(layer);
  config.set("mlp_only_layers", listed);
}

// ------------------------------------------------------------------- experts

ExpertLayers::ExpertLayers(const Family& family, const Options& options)
    : experts_(options.integer("experts")),
      ffn_(options.integer("expert_ffn")),
      biased_(family.experts == ExpertKeys::gpt_oss),
      limit_(options.number("expert_limit")),
      alpha_(options.number("expert_alpha")),
      sparse_(options),
      router_(options),
      capacity_(options),
      shared_(options) {}

void ExpertLayers::check(std::int64_t layers) const {
  if (limit_ != 0 && !biased_)
    throw_error(ErrorCode::bad_input, "cannot apply model.expert_limit = ", limit_,
                " outside of model.family = \"gpt_oss\"; leave it out, or choose that family");
  if (!any()) {
    if (shared_.present() || sparse_.some_dense() || router_.balances() || capacity_.limited())
      throw_error(ErrorCode::bad_input,
                  "cannot apply keys of experts with model.experts = 0; set model.experts");
    return;
  }
  bool some = false;
  for (std::int64_t layer = 0; layer < layers; ++layer) some |= has(layer);
  if (!some)
    throw_error(ErrorCode::bad_input,
                "cannot use model.experts: by model.dense_first, sparse_every and dense_layers none of the ",
                layers, " layers has any");
  if (router_.choices() > experts_)
    throw_error(ErrorCode::bad_input, "model.choices = ", router_.choices(),
                " are more than model.experts = ", experts_);
  shared_.check();
  router_.check_groups();
  capacity_.check(router_);
}

Id ExpertLayers::build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const {
  ChosenExperts chosen = router_.build(s, hidden, x, biased_);
  if (capacity_.limited()) chosen.index = capacity_.build(s, seq, router_.choices(), chosen);
  const Id y = build_chosen(s, hidden, x, chosen);
  return shared_.present() ? s.op("add", {y, shared_.build(s, hidden, x)}) : y;
}

Id ExpertLayers::build_chosen(const SegmentPart& s, const Dim& hidden, Id x,
                              const ChosenExperts& chosen) const {
  const Dim experts{"experts", experts_}, gate{"gate", 2}, ffn{"ffn", ffn_};
  const Id up = s.weight("experts.up.weight", {experts, gate, ffn, hidden}),
           down = s.weight("experts.down.weight", {experts, hidden, ffn});
  const auto count = static_cast<double>(experts_);
  if (!biased_) return s.op("experts", {x, chosen.index, chosen.weight, up, down}, {{"experts", count}});
  const Id y = s.op(
      "biased_experts",
      {x, chosen.index, chosen.weight, up, down, s.vector("experts.up.bias", {experts, gate, ffn}, zeros())},
      {{"experts", count}, {"limit", limit_}, {"alpha", alpha_}});
  const Id bias = s.vector("experts.down.bias", {experts, hidden}, zeros());
  return s.op("add", {y, s.op("expert_biases", {chosen.index, chosen.weight, bias})});
}

namespace {

// ------------------------------------------------------------------- experts files
// Maps experts to the files of Hugging Face's libraries: each MLP is three tensors of its own there.

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
