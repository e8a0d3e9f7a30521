#include "gpt.hpp"

#include <cmath>

namespace prun {

Gpt::Gpt(const Options& options)
    : layers_(options.integer("layers")),
      hidden_{"hidden", options.integer("hidden")},
      heads_{"heads", options.integer("heads")},
      ffn_{"ffn", options.integer("ffn") ? options.integer("ffn") : 4 * hidden_.extent},
      vocab_{"vocab", options.integer("vocab")},
      head_dim_{"head_dim", hidden_.extent / heads_.extent},
      positions_(options.integer("positions")),
      tied_(options.flag("tied")),
      dropout_(options.number("dropout")),
      eps_(options.number("norm_eps")) {
  if (hidden_.extent % heads_.extent != 0)
    throw_error(ErrorCode::bad_input, "model.hidden = ", hidden_.extent,
                " is not a multiple of model.heads = ", heads_.extent);
}

void Gpt::build(const ModelContext& context, ProgramRef program) {
  const Id table = embedding(context, program);
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

Id Gpt::embedding(const ModelContext& context, ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Id table = s.weight("token", {vocab_, hidden_}, normal(0.02));
  const Id positions = s.weight("position", {rows(context), hidden_}, normal(0.01));
  const Id x = s.op("embedding", {s.tokens(), table});
  s.outgoing(dropped(s, s.op("add_position", {x, positions}), 0));
  return table;
}

void Gpt::block(const Segment& s) const {
  const Id x = s.incoming();
  const Id after_attention = s.op("add", {x, dropped(s, attention(s, norm(s, x, "norm1")), 0)});
  s.outgoing(s.op("add", {after_attention, dropped(s, mlp(s, norm(s, after_attention, "norm2")), 1)}));
}

// One weight for queries, keys and values, grouped by head, so that sharding `heads` shards all three.
Id Gpt::attention(const Segment& s, Id x) const {
  const Dim packed{"packed", 3}, queries{"queries", 1};
  const Id qkv =
      s.op("linear", {x,
                      s.matrix(s.weight("qkv.weight", {heads_, packed, head_dim_, hidden_}, normal(0.02)),
                               {.batch = 1, .columns = 1, .cuts = {1, 2}}),
                      s.vector("qkv.bias", {heads_, packed, head_dim_}, zeros())});
  const std::vector<Id> heads = s.ops("split_heads", {qkv}, 3);
  return s.op("linear",
              {s.op("attention", {heads[0], heads[1], heads[2]}),
               s.matrix(s.weight("proj.weight", {hidden_, heads_, queries, head_dim_}, residual_init()),
                        {.columns = 3}),
               s.vector("proj.bias", {hidden_}, zeros())},
              {{"in_dims", 3}});
}

Id Gpt::mlp(const Segment& s, Id x) const {
  const Id up =
      s.op("linear", {x, s.matrix(s.weight("up.weight", {ffn_, hidden_}, normal(0.02)), {.columns = 1}),
                      s.vector("up.bias", {ffn_}, zeros())});
  return s.op("linear", {s.op("gelu", {up}),
                         s.matrix(s.weight("down.weight", {hidden_, ffn_}, residual_init()), {.columns = 1}),
                         s.vector("down.bias", {hidden_}, zeros())});
}

void Gpt::head(const Segment& s, Id table) const {
  const Id x = norm(s, s.incoming(), "norm");
  const Id weight = tied_ ? s.tie(table) : s.weight("weight", {vocab_, hidden_}, normal(0.02));
  s.op("lm_head", {x, weight, s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum")});
}

Id Gpt::norm(const Segment& s, Id x, const std::string& name) const {
  return s.op("layernorm",
              {x, s.vector(name + ".gain", {hidden_}, ones()), s.vector(name + ".bias", {hidden_}, zeros())},
              {{"eps", eps_}});
}

Id Gpt::dropped(const Segment& s, Id x, int stream) const {
  if (dropout_ == 0) return x;
  return s.op("dropout", {x, s.samples(), s.runtime("seed")},
              {{"p", dropout_}, {"stream", static_cast<double>(stream)}});
}

// Projections into the residual stream start smaller, by the number of them.
Init Gpt::residual_init() const { return normal(0.02 / std::sqrt(2.0 * static_cast<double>(layers_))); }

}  // namespace prun

PRUN_PLUGIN(model, prun::Gpt, "gpt", "0.1.0", "GPT-2: learned positions, layernorm, gelu",
            "reads=gpt2; also=gpt2,gpt-2",
            "layers   | int   | 12    | 1..100000   | Number of transformer blocks\n"
            "hidden   | int   | 768   | 1..1048576  | Width of the residual stream\n"
            "heads    | int   | 12    | 1..65536    | Attention heads; divides hidden\n"
            "ffn      | int   | 0     | 0..4194304  | Width of the MLP; 0: four times hidden\n"
            "vocab    | int   | 50304 | 2..16777216 | Rows of the token table\n"
            "positions | int  | 0     | 0..16777216 | Rows of the position table; 0: model.seq\n"
            "tied     | bool  | true  |             | The head shares the token table\n"
            "dropout  | float | 0     | 0..0.95     | Probability after the embedding, attention and MLP\n"
            "norm_eps | float | 1e-5  | 0..1        | Added to the variance in layernorm\n");
