#include "bert.hpp"

namespace prun {

namespace {

constexpr double deviation = 0.02;

}  // namespace

Bert::Bert(const Options& options)
    : layers_(options.integer("layers")),
      hidden_{"hidden", options.integer("hidden")},
      heads_{"heads", options.integer("heads")},
      ffn_{"ffn", options.integer("ffn") ? options.integer("ffn") : 4 * hidden_.extent},
      vocab_{"vocab", options.integer("vocab")},
      head_dim_{"head_dim", hidden_.extent / heads_.extent},
      positions_(options.integer("positions")),
      types_(options.integer("types")),
      separator_(options.integer("separator")),
      activation_(options.text("activation")),
      dropout_(options.number("dropout")),
      eps_(options.number("norm_eps")) {
  if (hidden_.extent % heads_.extent != 0)
    throw_error(ErrorCode::bad_input, "model.hidden = ", hidden_.extent,
                " is not a multiple of model.heads = ", heads_.extent);
  if (separator_ >= vocab_.extent)
    throw_error(ErrorCode::bad_input, "model.separator = ", separator_,
                " is outside of model.vocab = ", vocab_.extent);
}

void Bert::build(const ModelContext& context, ProgramRef program) {
  const Id table = embedding(context, program);
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

Id Bert::embedding(const ModelContext& context, ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Id table = s.weight("token", {vocab_, hidden_}, normal(deviation));
  const Id positions = s.weight("position", {rows(context), hidden_}, normal(deviation));
  const Id types = s.weight("type", {{"types", types_}, hidden_}, normal(deviation));
  const Id kinds =
      s.op("token_types", {s.tokens()},
           {{"separator", static_cast<double>(separator_)}, {"types", static_cast<double>(types_)}});
  const Id words = s.op("add", {s.op("embedding", {s.tokens(), table}), s.op("embedding", {kinds, types})});
  const Id x = s.op("add_position", {words, positions});
  s.outgoing(dropped(s, norm(s, x, "norm", hidden_), 0));
  return table;
}

void Bert::block(const Segment& s) const {
  const Id x = s.incoming();
  const Id seen = norm(s, s.op("add", {x, dropped(s, attention(s, x), 0)}), "norm1", hidden_);
  s.outgoing(norm(s, s.op("add", {seen, dropped(s, mlp(s, seen), 1)}), "norm2", hidden_));
}

// One weight for queries, keys and values, grouped by head, so that sharding `heads` shards all three.
Id Bert::attention(const Segment& s, Id x) const {
  const Dim packed{"packed", 3}, queries{"queries", 1};
  const Id weight = s.matrix(s.weight("qkv.weight", {heads_, packed, head_dim_, hidden_}, normal(deviation)),
                             {.batch = 1, .columns = 1, .cuts = {1, 2}});
  const Id qkv = s.op("linear", {x, weight, s.vector("qkv.bias", {heads_, packed, head_dim_}, zeros())});
  const std::vector<Id> heads = s.ops("split_heads", {qkv}, 3);
  return s.op("linear",
              {s.op("attention", {heads[0], heads[1], heads[2]}, {{"causal", 0}}),
               s.matrix(s.weight("proj.weight", {hidden_, heads_, queries, head_dim_}, normal(deviation)),
                        {.columns = 3}),
               s.vector("proj.bias", {hidden_}, zeros())},
              {{"in_dims", 3}});
}

Id Bert::mlp(const Segment& s, Id x) const {
  const Id up =
      s.op("linear", {x, s.matrix(s.weight("up.weight", {ffn_, hidden_}, normal(deviation)), {.columns = 1}),
                      s.vector("up.bias", {ffn_}, zeros())});
  return s.op("linear",
              {activated(s, up),
               s.matrix(s.weight("down.weight", {hidden_, ffn_}, normal(deviation)), {.columns = 1}),
               s.vector("down.bias", {hidden_}, zeros())});
}

void Bert::head(const Segment& s, Id table) const {
  const Dim width{"transform", hidden_.extent};
  const Id projected = s.op(
      "linear", {s.incoming(),
                 s.matrix(s.weight("transform.weight", {width, hidden_}, normal(deviation)), {.columns = 1}),
                 s.vector("transform.bias", {width}, zeros())});
  const Id x = norm(s, activated(s, projected), "norm", width);
  s.op("lm_head_biased", {x, s.tie(table), s.targets(), s.vector("bias", {vocab_}, zeros()),
                          s.runtime("inv_targets"), s.runtime("loss_sum")});
}

Id Bert::activated(const Segment& s, Id x) const {
  return s.op(activation_ == "gelu" ? "gelu_erf" : "gelu", {x});
}

Id Bert::norm(const Segment& s, Id x, const std::string& name, const Dim& width) const {
  return s.op("layernorm",
              {x, s.vector(name + ".gain", {width}, ones()), s.vector(name + ".bias", {width}, zeros())},
              {{"eps", eps_}});
}

Id Bert::dropped(const Segment& s, Id x, int stream) const {
  if (dropout_ == 0) return x;
  return s.op("dropout", {x, s.samples(), s.runtime("seed")},
              {{"p", dropout_}, {"stream", static_cast<double>(stream)}});
}

}  // namespace prun

PRUN_PLUGIN(model, prun::Bert, "bert", "0.1.0", "BERT: both directions, token types, a loss on masked tokens",
            "reads=bert; predicts=masked; also=mlm,masked_lm",
            "layers   | int   | 12    | 1..100000   | Number of transformer blocks\n"
            "hidden   | int   | 768   | 1..1048576  | Width of the residual stream\n"
            "heads    | int   | 12    | 1..65536    | Attention heads; divides hidden\n"
            "ffn      | int   | 0     | 0..4194304  | Width of the MLP; 0: four times hidden\n"
            "vocab    | int   | 30522 | 2..16777216 | Rows of the token table\n"
            "positions | int  | 0     | 0..16777216 | Rows of the position table; 0: model.seq\n"
            "types    | int   | 2     | 1..65536    | Rows of the table of token types\n"
            "separator | int  | -1    | -1..16777215 | Token behind which the next type begins, 102 for "
            "[SEP] of bert-base; -1: all tokens are of the first type\n"
            "activation | choice | gelu | gelu,gelu_tanh | Of the MLP and the head; gelu: by erf\n"
            "dropout  | float | 0     | 0..0.95     | Probability after the embedding, attention and MLP\n"
            "norm_eps | float | 1e-12 | 0..1        | Added to the variance in layernorm\n");
