// Reads and writes ModernBERT as Hugging Face's libraries keep it: ModernBertForMaskedLM.
#include "modernbert.hpp"

namespace prun {
namespace {

constexpr std::int64_t usual_every = 3, usual_reach = 128;  // where files do not say it

std::int64_t integer_or(const Options& config, const char* key, std::int64_t otherwise) {
  return config.has(key) ? config.integer(key) : otherwise;
}

void refuse(const Options& config) {
  expect_text(config, "hidden_activation", {"gelu"});
  expect_text(config, "classifier_activation", {"gelu"});
  for (const char* biases : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"})
    expect_flag(config, biases, false);
  expect_flag(config, "tie_word_embeddings", true);
  expect_absent(config, "quantization_config", "weights of few bits");
  expect_absent(config, "rope_scaling", "positions that turn slower");
}

// Older files have a number for each kind of layer, newer ones a table, which counts.
double read_base(const Options& config, const std::string& kind, const char* older, double otherwise) {
  const std::string table = "rope_parameters." + kind;
  if (config.has(table)) expect_text(config, table + ".rope_type", {"default"});
  const std::string key = table + ".rope_theta";
  if (config.has("rope_parameters") && config.has(older))
    throw_error(ErrorCode::bad_input, "'", older, "' stands beside 'rope_parameters'; leave one of them");
  if (config.has("rope_parameters") && config.has(key)) return config.number(key);
  return config.has(older) ? config.number(older) : otherwise;
}

// Reads which layers see all: each of a number from the first on, or those of a list.
void read_layers(const Options& config, std::int64_t layers, ConfigWriter& options) {
  const std::int64_t every = integer_or(config, "global_attn_every_n_layers", usual_every);
  if (!config.has("layer_types")) {
    if (every < 1)
      throw_error(ErrorCode::bad_input, "'global_attn_every_n_layers' is ", every,
                  ", and each layer of a number above 0 sees all");
    return options.set("full_every", every);
  }
  const std::vector<std::string> kinds = config.texts("layer_types");
  if (static_cast<std::int64_t>(kinds.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", kinds.size(), " layers of ", layers);
  std::vector<std::int64_t> full;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string& kind = kinds[static_cast<std::size_t>(layer)];
    if (kind == "full_attention")
      full.push_back(layer);
    else if (kind != "sliding_attention")
      throw_error(ErrorCode::bad_input, "'layer_types' has '", kind,
                  "', and layers of this model are 'full_attention' or 'sliding_attention'");
  }
  std::int64_t step = full.size() > 1 ? full[1] : layers;
  for (std::size_t i = 0; i < full.size(); ++i)
    if (full[i] != static_cast<std::int64_t>(i) * step) step = 0;
  if (full.empty() || (static_cast<std::int64_t>(full.size()) - 1) * step + step < layers) step = 0;
  options.set("full_every", step);
  if (step == 0) options.set("full_layers", full);
}

}  // namespace

// Leaves dropout to the user: it is no part of the model.
void ModernBert::read_config(const Options& config, ConfigWriter& options) {
  refuse(config);
  Widths::read_config(config, options);
  options.set("positions", integer_or(config, "max_position_embeddings", 8192));
  const std::int64_t reach = integer_or(config, "local_attention", usual_reach);
  if (reach < 2 || reach % 2 != 0)
    throw_error(ErrorCode::bad_input, "'local_attention' is ", reach,
                ", and a position sees as far back as ahead: half of an even number");
  options.set("window", reach / 2 + 1);
  read_layers(config, config.integer("num_hidden_layers"), options);
  options.set("rope_base", read_base(config, "full_attention", "global_rope_theta", 160000));
  options.set("rope_base_window", read_base(config, "sliding_attention", "local_rope_theta", 10000));
  options.set("norm_eps", config.has("norm_eps") ? config.number("norm_eps") : 1e-5);
  if (config.has("decoder_bias")) options.set("head_bias", config.flag("decoder_bias"));
  SpecialTokens::read_config(config, options);
}

void ModernBert::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", "modernbert");
  config.set("architectures", std::vector<std::string>{"ModernBertForMaskedLM"});
  config.set("hidden_activation", "gelu");
  config.set("classifier_activation", "gelu");
  widths_.write_config(layers_, config);
  config.set("max_position_embeddings", positions_ ? positions_ : context.seq);
  config.set("local_attention", window_ > 1 ? 2 * (window_ - 1) : usual_reach);
  if (window_ == 1)
    throw_error(
        ErrorCode::unsupported,
        "a config.json of model_type 'modernbert' has no key for model.window = 1; take 0 or 2 and more");
  std::vector<std::string> kinds;
  bool in_turn = true;
  const std::int64_t every = full_every_ > 0 ? full_every_ : usual_every;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    kinds.emplace_back(is_full(layer) ? "full_attention" : "sliding_attention");
    in_turn = in_turn && is_full(layer) == (layer % every == 0);
  }
  // Releases of transformers before 5 know the number alone, later ones take the list.
  if (in_turn) config.set("global_attn_every_n_layers", every);
  config.set("layer_types", kinds);
  config.set("global_rope_theta", base_);
  config.set("local_rope_theta", window_base_);
  for (const char* biases : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"})
    config.set(biases, false);
  config.set("decoder_bias", head_bias_);
  config.set("tie_word_embeddings", true);
  config.set("norm_eps", eps_);
  config.set("embedding_dropout", dropout_.probability);
  config.set("mlp_dropout", dropout_.probability);
  config.set("attention_dropout", attention_dropout_.probability);
  tokens_.write_config(config);
}

ForeignWeights ModernBert::foreign_weights() const {
  ForeignWeights weights{{"model.", ""}, {}, {"decoder.weight=model.embeddings.tok_embeddings.weight"}};
  const WeightNames names(weights);
  names.add("embedding.token", "model.embeddings.tok_embeddings.weight");
  names.add("embedding.norm.gain", "model.embeddings.norm.weight");
  for (const Run& run : runs()) {
    const auto add = [&](const char* parameter, const char* name, const char* dims = "") {
      weights.tensors.push_back(
          {run.segment + "." + parameter, std::string("model.layers.*.") + name, dims, "", 0, 0, run.first});
    };
    if (run.normed) add("norm1.gain", "attn_norm.weight");
    add("qkv.weight", "attn.Wqkv.weight", "packed heads head_dim, hidden");
    add("proj.weight", "attn.Wo.weight", "hidden, heads queries head_dim");
    add("norm2.gain", "mlp_norm.weight");
    add("up.weight", "mlp.Wi.weight", "gate ffn, hidden");
    add("down.weight", "mlp.Wo.weight");
  }
  names.add("head.last_norm.gain", "model.final_norm.weight");
  names.add("head.transform.weight", "head.dense.weight");
  names.add("head.norm.gain", "head.norm.weight");
  if (head_bias_) names.add("head.bias", "decoder.bias");
  return weights;
}

}  // namespace prun
