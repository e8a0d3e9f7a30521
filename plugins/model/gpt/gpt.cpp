#include "gpt.hpp"

#include <cmath>

// ------------------------------------------------------------------- gpt

namespace prun {

Gpt::Gpt(const Options& options)
    : layers_(options.integer("layers")),
      widths_(options),
      positions_{options.integer("positions")},
      tied_(options.flag("tied")),
      deviation_(options.number("init_std")),
      dropout_{options.number("dropout")},
      attention_dropout_{options.number("attention_dropout")},
      norm_{options.number("norm_eps")},
      tokens_(options) {}

void Gpt::build(const ModelContext& context, ProgramRef program) {
  const Id table = embedding(context, program);
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

Id Gpt::embedding(const ModelContext& context, ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Id table = s.weight("token", {widths_.vocab, widths_.hidden}, normal(deviation_));
  const Id positions =
      s.weight("position", {positions_.rows(context), widths_.hidden}, normal(deviation_ / 2));
  const Id x = s.op("embedding", {s.tokens(), table});
  s.outgoing(dropout_.of(s, s.op("add_position", {x, positions}), 0));
  return table;
}

void Gpt::block(const Segment& s) const {
  const BiasedSublayers sublayers{widths_, normal(deviation_), residual_init(), attention_dropout_};
  const Id x = s.incoming();
  const Id seen = sublayers.attention(s, norm(s, x, "norm1"), true);
  const Id after_attention = s.op("add", {x, dropout_.of(s, seen, 0)});
  const Id made = sublayers.mlp(s, norm(s, after_attention, "norm2"), "gelu");
  s.outgoing(s.op("add", {after_attention, dropout_.of(s, made, 1)}));
}

void Gpt::head(const Segment& s, Id table) const {
  const Id x = norm(s, s.incoming(), "norm");
  const Id weight =
      tied_ ? s.tie(table) : s.weight("weight", {widths_.vocab, widths_.hidden}, normal(deviation_));
  s.op("lm_head", {x, weight, s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum")});
}

Id Gpt::norm(const Segment& s, Id x, const std::string& name) const {
  return norm_.of(s, x, name, widths_.hidden);
}

// Projections into the residual stream start smaller, by the root of their number.
Init Gpt::residual_init() const { return normal(deviation_ / std::sqrt(2.0 * static_cast<double>(layers_))); }

// ------------------------------------------------------------------- hugging face
// Reads and writes GPT-2 as Hugging Face's libraries keep it.

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

PRUN_PLUGIN(
    model, prun::Gpt, "gpt", "0.1.0", "GPT-2: learned positions, layernorm, gelu",
    "reads=gpt2; also=gpt2,gpt-2",
    "layers   | int   | 12    | 1..100000   | Number of transformer blocks\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads; must divide hidden\n"
    "ffn      | int   | 0     | 0..4194304  | Width of the MLP; 0: 4 * hidden\n"
    "vocab    | int   | 50304 | 2..16777216 | Vocabulary size\n"
    "positions | int  | 0     | 0..16777216 | Rows of the position embedding; 0: model.seq\n"
    "tied     | bool  | true  |             | Share the embedding table with the head (tied weights)\n"
    "init_std | float | 0.02  | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights; half of it for positions, and divided by sqrt(2 * layers) for projections into the residual "
    "stream\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after the embedding, attention and MLP\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights\n"
    "norm_eps | float | 1e-5  | 0..1        | Epsilon added to the variance in "
    "layernorm\n" PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1"));
