#include "bert.hpp"

namespace prun {

Bert::Bert(const Options& options)
    : layers_(options.integer("layers")),
      widths_(options),
      positions_{options.integer("positions")},
      types_(options.integer("types")),
      separator_(options.integer("separator")),
      activation_(options.text("activation")),
      deviation_(options.number("init_std")),
      dropout_{options.number("dropout")},
      attention_dropout_{options.number("attention_dropout")},
      norm_{options.number("norm_eps")},
      tokens_(options) {
  if (separator_ >= widths_.vocab.extent)
    throw_error(ErrorCode::bad_input, "model.separator = ", separator_,
                " is outside of model.vocab = ", widths_.vocab.extent);
}

void Bert::build(const ModelContext& context, ProgramRef program) {
  const Id table = embedding(context, program);
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

Id Bert::embedding(const ModelContext& context, ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Dim& hidden = widths_.hidden;
  const Id table = s.weight("token", {widths_.vocab, hidden}, normal(deviation_));
  const Id positions = s.weight("position", {positions_.rows(context), hidden}, normal(deviation_));
  const Id types = s.weight("type", {{"types", types_}, hidden}, normal(deviation_));
  const Id kinds =
      s.op("token_types", {s.tokens()},
           {{"separator", static_cast<double>(separator_)}, {"types", static_cast<double>(types_)}});
  const Id looked_up =
      s.op("embedding", {s.tokens(), table}, {{"padding", static_cast<double>(tokens_.padding)}});
  const Id words = s.op("add", {looked_up, s.op("embedding", {kinds, types})});
  const Id x = s.op("add_position", {words, positions});
  s.outgoing(dropout_.of(s, norm_.of(s, x, "norm", hidden), 0));
  return table;
}

void Bert::block(const Segment& s) const {
  const BiasedSublayers sublayers{widths_, normal(deviation_), normal(deviation_), attention_dropout_};
  const Id x = s.incoming();
  const Id near = s.op("add", {x, dropout_.of(s, sublayers.attention(s, x, false), 0)});
  const Id seen = norm_.of(s, near, "norm1", widths_.hidden);
  const Id made = s.op("add", {seen, dropout_.of(s, sublayers.mlp(s, seen, activation()), 1)});
  s.outgoing(norm_.of(s, made, "norm2", widths_.hidden));
}

void Bert::head(const Segment& s, Id table) const {
  const Dim& hidden = widths_.hidden;
  const Dim width{"transform", hidden.extent};
  const Id projected = s.op(
      "linear", {s.incoming(),
                 s.matrix(s.weight("transform.weight", {width, hidden}, normal(deviation_)), {.columns = 1}),
                 s.vector("transform.bias", {width}, zeros())});
  const Id x = norm_.of(s, s.op(activation(), {projected}), "norm", width);
  s.op("lm_head", {x, s.tie(table), s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum"), none,
                   s.vector("bias", {widths_.vocab}, zeros())});
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::Bert, "bert", "0.1.0", "BERT: bidirectional, token types, a loss on masked tokens",
    "reads=bert; predicts=masked; also=mlm,masked_lm",
    "layers   | int   | 12    | 1..100000   | Number of transformer blocks\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads; must divide hidden\n"
    "ffn      | int   | 0     | 0..4194304  | Width of the MLP; 0: 4 * hidden\n"
    "vocab    | int   | 30522 | 2..16777216 | Vocabulary size\n"
    "positions | int  | 0     | 0..16777216 | Rows of the position embedding; 0: model.seq\n"
    "types    | int   | 2     | 1..65536    | Number of token types\n"
    "separator | int  | -1    | -1..16777215 | Token after which the token type increases, 102 ([SEP]) for "
    "bert-base; -1: all tokens have the first type\n"
    "activation | choice | gelu | gelu,gelu_tanh | Activation of the MLP and the head; gelu: the exact one, "
    "by erf\n"
    "init_std | float | 0.02  | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after the embedding, attention and MLP\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights\n"
    "norm_eps | float | 1e-12 | 0..1        | Epsilon added to the variance in "
    "layernorm\n" PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1"));
