// Reads a config.json of Hugging Face's libraries as options of this model.
#include <vector>

#include "llama.hpp"

namespace prun {
namespace {

constexpr const char* windowed_type = "sliding_attention";

std::int64_t integer(const Options& config, const char* key, std::int64_t otherwise) {
  return config.has(key) ? config.integer(key) : otherwise;
}

// Finds which layers the list says have the window; one that follows no rule of ours is refused.
WindowedLayers listed_windows(const std::vector<std::string>& types, std::int64_t layers) {
  if (static_cast<std::int64_t>(types.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", types.size(), " layers of ", layers);
  const auto windowed = [&](std::int64_t i) { return types[static_cast<std::size_t>(i)] == windowed_type; };
  WindowedLayers found{.window = 1};
  while (found.from < layers && !windowed(found.from)) ++found.from;
  if (found.from == layers) return {};
  std::int64_t full = found.from;
  while (full < layers && windowed(full)) ++full;
  if (full < layers) found.full_every = full + 1;
  for (std::int64_t i = 0; i < layers; ++i)
    if (found.has(i) != windowed(i))
      throw_error(ErrorCode::bad_input, "'layer_types' has '", types[static_cast<std::size_t>(i)],
                  "' for layer ", i,
                  "; this model has windows from one layer on, or in all but each layer of such a number");
  return found;
}

WindowedLayers layers_with_windows(const Options& config, const Family& family, std::int64_t layers) {
  if (config.has("layer_types")) {
    const std::vector<std::string> types = config.texts("layer_types");
    for (const std::string& type : types)
      if (type != "full_attention" && (type != windowed_type || family.windows == WindowKeys::absent))
        throw_error(ErrorCode::bad_input, "'layer_types' has '", type,
                    "', and this model only computes full ",
                    family.windows == WindowKeys::absent ? "attention" : "and sliding attention");
    if (family.windows != WindowKeys::every) return listed_windows(types, layers);
  }
  switch (family.windows) {
    case WindowKeys::absent: return {};
    case WindowKeys::every: return {.window = 1};
    case WindowKeys::late: return {.window = 1, .from = integer(config, "max_window_layers", 28)};
    case WindowKeys::turns:
      return {.window = 1, .from = 0, .full_every = integer(config, "sliding_window_pattern", 6)};
  }
  return {};
}

WindowedLayers read_windows(const Options& config, const Family& family, std::int64_t layers) {
  if (family.windows == WindowKeys::absent) expect_flag(config, "use_sliding_window", false);
  WindowedLayers found = layers_with_windows(config, family, layers);
  const bool off = family.windows == WindowKeys::late &&
                   !(config.has("use_sliding_window") && config.flag("use_sliding_window"));
  const std::int64_t window = off ? 0 : integer(config, "sliding_window", 0);
  if (off && config.has("layer_types") && found.window > 0)
    throw_error(ErrorCode::bad_input, "'layer_types' has '", windowed_type,
                "', and 'use_sliding_window' is not true; make it so, or leave the window out");
  if (window == 0 || found.window == 0 || found.from >= layers) return {};
  found.window = window;
  return found;
}

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

void set_windows(const WindowedLayers& windows, ConfigWriter& options) {
  if (windows.window == 0) return;
  options.set("window", windows.window);
  if (windows.from != 0) options.set("window_from", windows.from);
  if (windows.full_every != 0) options.set("full_every", windows.full_every);
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
  options.set("kv_heads", integer(config, "num_key_value_heads", family.kv_heads ? family.kv_heads : heads));
  const std::int64_t head_dim = integer(config, "head_dim",
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
  options.set("positions", integer(config, "max_position_embeddings", 0));
  options.set("tied", config.has("tie_word_embeddings") ? config.flag("tie_word_embeddings") : family.tied);
  options.set("qkv_bias", family.qkv_bias);
  options.set("norm_eps", config.has("rms_norm_eps") ? config.number("rms_norm_eps") : family.eps);
  if (family.option != "llama") options.set("family", std::string(family.option));
  if (family.scaled_embedding) {
    const double scalar = config.has("query_pre_attn_scalar") ? config.number("query_pre_attn_scalar") : 256;
    if (scalar != static_cast<double>(head_dim)) options.set("query_scalar", scalar);
  }
  const WindowedLayers windows = read_windows(config, family, layers);
  set_windows(windows, options);
  RopeConfig rope = read_rope(config, family);
  if (windows.window == 0) rope.window_base = 0;
  write_rope_options(rope, family, options);
}

}  // namespace prun
