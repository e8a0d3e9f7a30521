// Llama 3 and Qwen2 as Hugging Face's libraries keep them.
#include "llama.hpp"

namespace prun {
namespace {

// How positions turn queries and keys; what slows them down counts where `factor` is not 1.
struct Rope {
  double base = 10000, factor = 1, low = 0, high = 0, original = 0;
};

// Of a table, or of the file itself where `table` is empty.
Rope read_rope(const Options& config, const std::string& table) {
  Rope rope;
  const std::string base = config.has(table + "rope_theta") ? table + "rope_theta" : "rope_theta";
  if (config.has(base)) rope.base = config.number(base);
  const std::string partial = table + "partial_rotary_factor";
  if (config.has(partial) && config.number(partial) != 1)
    throw_error(ErrorCode::bad_input, "'", partial, "' is ", config.number(partial),
                ", and this model turns whole heads");
  if (table.empty()) return rope;
  for (const char* own : {"full_attention", "sliding_attention"})
    expect_absent(config, table + own, "positions that turn otherwise from layer to layer");
  const std::string kind = config.has(table + "rope_type") ? table + "rope_type" : table + "type";
  expect_text(config, kind, {"llama3", "default"});
  if (!config.has(kind) || config.text(kind) != "llama3") return rope;
  rope.factor = config.number(table + "factor");
  rope.low = config.number(table + "low_freq_factor");
  rope.high = config.number(table + "high_freq_factor");
  rope.original = config.number(table + "original_max_position_embeddings");
  return rope;
}

// Which of two tables counts differs between releases of transformers, and so does which of two bases.
void check_alike(const Rope& rope, const Rope& other, const char* one, const char* two) {
  const struct {
    const char* name;
    double here, there;
  } parts[] = {{"rope_theta", rope.base, other.base},
               {"factor", rope.factor, other.factor},
               {"low_freq_factor", rope.low, other.low},
               {"high_freq_factor", rope.high, other.high},
               {"original_max_position_embeddings", rope.original, other.original}};
  for (const auto& part : parts)
    if (part.here != part.there)
      throw_error(ErrorCode::bad_input, "'", one, "' makes '", part.name, "' ", part.here, " and '", two,
                  "' makes it ", part.there, "; leave one of them");
}

// Older files have the base beside a table of what is slowed down, newer ones have both in one table.
Rope read_rope(const Options& config) {
  const char* const newer = "rope_parameters";
  const char* const older = "rope_scaling";
  const Rope bare = read_rope(config, "");
  Rope rope = bare;
  if (config.has(older)) rope = read_rope(config, std::string(older) + ".");
  if (!config.has(newer)) return rope;
  const Rope now = read_rope(config, std::string(newer) + ".");
  if (config.has(older)) check_alike(now, rope, newer, older);
  if (config.has("rope_theta") && bare.base != now.base)
    throw_error(ErrorCode::bad_input, "'rope_theta' is ", bare.base, " and 'rope_parameters.rope_theta' ",
                now.base, "; leave one of them");
  return now;
}

void write_rope(const Rope& rope, ConfigWriter& options) {
  options.set("rope_base", rope.base);
  options.set("rope_factor", rope.factor);
  if (rope.factor == 1) return;
  options.set("rope_low", rope.low);
  options.set("rope_high", rope.high);
  options.set("rope_original", rope.original);
}

void check_attention(const Options& config) {
  expect_flag(config, "attention_bias", false);
  expect_flag(config, "use_sliding_window", false);
  if (!config.has("layer_types")) return;
  for (const std::string& type : config.texts("layer_types"))
    if (type != "full_attention")
      throw_error(ErrorCode::bad_input, "'layer_types' has '", type,
                  "', and this model only computes full attention");
}

}  // namespace

void Llama::read_config(const Options& config, ConfigWriter& options) {
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    return config.has(key) ? config.integer(key) : otherwise;
  };
  check_attention(config);
  expect_text(config, "hidden_act", {"silu", "swish"});
  expect_flag(config, "mlp_bias", false);
  expect_absent(config, "quantization_config", "weights of few bits");
  options.set("layers", config.integer("num_hidden_layers"));
  const std::int64_t hidden = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  options.set("hidden", hidden);
  options.set("heads", heads);
  options.set("kv_heads", integer("num_key_value_heads", heads));
  options.set("head_dim", integer("head_dim", heads > 0 ? hidden / heads : 0));
  options.set("ffn", config.integer("intermediate_size"));
  options.set("vocab", config.integer("vocab_size"));
  options.set("positions", integer("max_position_embeddings", 0));
  options.set("tied", config.has("tie_word_embeddings") && config.flag("tie_word_embeddings"));
  options.set("qkv_bias", config.text("model_type") == "qwen2");
  options.set("norm_eps", config.has("rms_norm_eps") ? config.number("rms_norm_eps") : 1e-6);
  write_rope(read_rope(config), options);
}

// As releases of transformers before 5 write it, which later ones read.
void Llama::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", qkv_bias_ ? "qwen2" : "llama");
  config.set("architectures", std::vector<std::string>{qkv_bias_ ? "Qwen2ForCausalLM" : "LlamaForCausalLM"});
  config.set("hidden_act", "silu");
  config.set("num_hidden_layers", layers_);
  config.set("hidden_size", hidden_.extent);
  config.set("num_attention_heads", heads_);
  config.set("num_key_value_heads", groups_.extent);
  config.set("head_dim", head_dim_.extent);
  config.set("intermediate_size", ffn_.extent);
  config.set("vocab_size", vocab_.extent);
  config.set("max_position_embeddings", positions_ ? positions_ : context.seq);
  config.set("tie_word_embeddings", tied_);
  config.set("rms_norm_eps", eps_);
  config.set("rope_theta", rope_base_);
  if (rope_factor_ == 1) return;
  config.set("rope_scaling.rope_type", "llama3");
  config.set("rope_scaling.factor", rope_factor_);
  config.set("rope_scaling.low_freq_factor", rope_low_);
  config.set("rope_scaling.high_freq_factor", rope_high_);
  config.set("rope_scaling.original_max_position_embeddings", static_cast<std::int64_t>(rope_original_));
}

// Queries, keys and values of a head group lie together here and in three tensors there, and so do both
// halves of the MLP's first projection.
ForeignWeights Llama::foreign_weights() const {
  const std::string layer = "model.layers.*.";
  ForeignWeights weights{{"model.", ""},
                         {{"embedding.token", "model.embed_tokens.weight"},
                          {"block.norm1.gain", layer + "input_layernorm.weight"},
                          {"block.norm2.gain", layer + "post_attention_layernorm.weight"},
                          {"block.down.weight", layer + "mlp.down_proj.weight"},
                          {"head.norm.gain", "model.norm.weight"}},
                         {"*.rotary_emb.inv_freq"}};
  const auto add = [&](const char* parameter, const std::string& name, const char* dims,
                       const char* part = "", std::int64_t begin = 0, std::int64_t end = 0) {
    weights.tensors.push_back({parameter, layer + name, dims, part, begin, end});
  };
  const auto add_packed = [&](const std::string& name, std::int64_t begin, std::int64_t end) {
    add("block.qkv.weight", name + ".weight", "heads packed head_dim, hidden", "packed", begin, end);
    if (qkv_bias_) add("block.qkv.bias", name + ".bias", "heads packed head_dim", "packed", begin, end);
  };
  const std::int64_t queries = heads_ / groups_.extent;
  add_packed("self_attn.q_proj", 0, queries);
  add_packed("self_attn.k_proj", queries, queries + 1);
  add_packed("self_attn.v_proj", queries + 1, queries + 2);
  add("block.proj.weight", "self_attn.o_proj.weight", "hidden, heads queries head_dim");
  add("block.up.weight", "mlp.gate_proj.weight", "gate ffn, hidden", "gate", 0, 1);
  add("block.up.weight", "mlp.up_proj.weight", "gate ffn, hidden", "gate", 1, 2);
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
