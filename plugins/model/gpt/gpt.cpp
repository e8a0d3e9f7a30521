#include "gpt.hpp"

#include <cmath>

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
