#include "modernbert.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

ModernBert::ModernBert(const Options& options)
    : layers_(options.integer("layers")),
      widths_(options),
      positions_(options.integer("positions")),
      window_(options.integer("window")),
      full_every_(options.integer("full_every")),
      base_(options.number("rope_base")),
      window_base_(options.number("rope_base_window")),
      inner_(normal(options.number("init_std"))),
      residual_(normal(options.number("init_std") / std::sqrt(2.0 * static_cast<double>(layers_)))),
      dropout_{options.number("dropout")},
      attention_dropout_{options.number("attention_dropout")},
      eps_(options.number("norm_eps")),
      head_bias_(options.flag("head_bias")),
      tokens_(options) {
  for (const double layer : options.numbers("full_layers")) full_.push_back(static_cast<std::int64_t>(layer));
  if (widths_.head_dim.extent % 2 != 0)
    throw_error(ErrorCode::bad_input, "model.hidden / model.heads = ", widths_.head_dim.extent,
                " is odd, and rotary positions turn pairs");
}

bool ModernBert::is_full(std::int64_t layer) const {
  return window_ == 0 || (full_every_ > 0 && layer % full_every_ == 0) ||
         std::find(full_.begin(), full_.end(), layer) != full_.end();
}

std::vector<ModernBert::Run> ModernBert::runs() const {
  std::vector<Run> runs;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const bool full = is_full(layer), normed = layer > 0;
    if (runs.empty() || runs.back().full != full || runs.back().normed != normed)
      runs.push_back({"block" + std::to_string(layer), layer, 0, full, normed});
    ++runs.back().count;
  }
  return runs;
}

void ModernBert::build(const ModelContext&, ProgramRef program) {
  const Id table = embedding(program);
  for (const Run& run : runs()) block(program.segment(run.segment, run.count), run);
  head(program.segment("head"), table);
}

Id ModernBert::embedding(ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Id table = s.weight("token", {widths_.vocab, widths_.hidden}, inner_);
  const Id words =
      s.op("embedding", {s.tokens(), table}, {{"padding", static_cast<double>(tokens_.padding)}});
  s.outgoing(dropout_.of(s, norm(s, words, "norm", widths_.hidden), 0));
  return table;
}

void ModernBert::block(const Segment& s, const Run& run) const {
  const Id x = s.incoming();
  const Id near = s.op("add", {x, attention(s, run, run.normed ? norm(s, x, "norm1", widths_.hidden) : x)});
  s.outgoing(s.op("add", {near, mlp(s, norm(s, near, "norm2", widths_.hidden))}));
}

Id ModernBert::attention(const Segment& s, const Run& run, Id x) const {
  const Id qkv = s.op("linear", {x, widths_.packed_weight(s, inner_), none});
  const std::vector<Id> of = s.ops("rope", {qkv}, 3, {{"base", run.full ? base_ : window_base_}});
  const Id seen = attention_dropout_.of(
      s, of, {{"causal", 0}, {"window", run.full ? 0.0 : static_cast<double>(window_)}});
  return Dropout{attention_dropout_.probability}.of(s, widths_.projected(s, seen, residual_, false), 1);
}

Id ModernBert::mlp(const Segment& s, Id x) const {
  const Id up = s.matrix(s.weight("up.weight", {{"gate", 2}, widths_.ffn, widths_.hidden}, inner_),
                         {.columns = 1, .cuts = {1}});
  const Id down = s.matrix(s.weight("down.weight", {widths_.hidden, widths_.ffn}, residual_), {.columns = 1});
  return s.op("linear", {dropout_.of(s, s.op("geglu_erf", {s.op("linear", {x, up, none})}), 0), down, none});
}

void ModernBert::head(const Segment& s, Id table) const {
  const Dim width{"transform", widths_.hidden.extent};
  const Id projected = s.op(
      "linear",
      {norm(s, s.incoming(), "last_norm", widths_.hidden),
       s.matrix(s.weight("transform.weight", {width, widths_.hidden}, residual_), {.columns = 1}), none});
  const Id x = norm(s, s.op("gelu_erf", {projected}), "norm", width);
  s.op("lm_head", {x, s.tie(table), s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum"), none,
                   head_bias_ ? s.vector("bias", {widths_.vocab}, zeros()) : none});
}

Id ModernBert::norm(const Segment& s, Id x, const std::string& name, const Dim& width) const {
  return s.op("layernorm", {x, s.vector(name + ".gain", {width}, ones()), none}, {{"eps", eps_}});
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::ModernBert, "modernbert", "0.1.0",
    "ModernBERT: bidirectional, alternating full and sliding-window attention, a loss on masked tokens",
    "reads=modernbert; predicts=masked; also=modern_bert",
    "layers   | int   | 22    | 1..1000     | Number of transformer blocks\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads; must divide hidden\n"
    "ffn      | int   | 1152  | 1..4194304  | Width of the MLP\n"
    "vocab    | int   | 50368 | 2..16777216 | Vocabulary size\n"
    "window   | int   | 65    | 0..1000000000 | Sliding-window attention: number of positions attended to in "
    "each direction, itself included, in layers without full attention; 0: all layers have full attention\n"
    "full_every | int | 3     | 0..100000   | Every n-th layer has full attention, starting with the first; "
    "0: none\n"
    "full_layers | ints | []  | 0..100000   | Further layers with full attention, counted from 0\n"
    "rope_base | float | 160000 | 1..1e12    | Base of the rotary frequencies in layers with full attention\n"
    "rope_base_window | float | 10000 | 1..1e12 | Base of the rotary frequencies in layers with the window\n"
    "positions | int  | 0     | 0..1000000000 | Maximum sequence length of the model, written to exports "
    "(max_position_embeddings); 0: model.seq\n"
    "init_std | float | 0.02  | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights; divided by sqrt(2 * layers) for projections into the residual stream\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after the embedding and within the MLP\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights and of attention's "
    "output\n"
    "norm_eps | float | 1e-5  | 0..1        | Epsilon added to the variance in layernorm\n"
    "head_bias | bool | true  |             | Add a bias for each token to the "
    "head\n" PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1"));
