// Implements a model whose segments carry values for all behind them. The first segment carries what it makes
// of the tokens, shorter and wider than what it hands on, and each token's type; the one in the middle
// carries what it makes of half of the layers. Layers of the first half read the first value, those of the
// second half both, and the head all.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Relay final : public Model {
 public:
  explicit Relay(const Options& options)
      : layers_(options.integer("layers")),
        hidden_{"hidden", options.integer("hidden")},
        heads_{"heads", options.integer("heads")},
        head_dim_{"head_dim", hidden_.extent / heads_.extent},
        ffn_{"ffn", options.integer("ffn")},
        vocab_{"vocab", options.integer("vocab")},
        tied_(options.flag("tied")),
        dropout_(options.number("dropout")) {}

  void build(const ModelContext& context, ProgramRef program) override {
    const Segment first = program.segment("first");
    const Dim seq{"seq", context.seq}, some{"some", 3};
    const Id table = weight(first, "token", {vocab_, hidden_});
    const Id x = first.op("embedding", {first.tokens(), table});
    const Id wide = first.carry(
        first.op("linear", {x, weight(first, "wide", {some, wide_, seq, hidden_}), none}, {{"in_dims", 2}}));
    const Id kinds = first.carry(first.op("token_types", {first.tokens()}, {{"separator", 3}, {"types", 2}}));
    first.outgoing(x);
    layer(program.segment("front", layers_), {wide});
    const Segment middle = program.segment("middle");
    const Id half = norm(middle, middle.incoming(), "norm");
    const Id seen = middle.carry(middle.op("add", {half, across(middle, half, wide)}));
    middle.outgoing(middle.op("scale", {half}, {{"factor", 0.5}}));
    layer(program.segment("back", layers_), {wide, seen});
    head(program.segment("head"), table, kinds, seen);
  }

 private:
  static constexpr double deviation = 0.1;

  Id weight(const Segment& s, const char* name, std::initializer_list<Dim> dims) const {
    return s.weight(name, dims, normal(deviation));
  }
  Id linear(const Segment& s, Id x, const char* name, std::initializer_list<Dim> dims) const {
    return s.op("linear", {x, weight(s, name, dims), none});
  }
  Id norm(const Segment& s, Id x, const std::string& name) const {
    return s.op("layernorm", {x, s.vector(name + ".gain", {hidden_}, ones()),
                              s.vector(name + ".bias", {hidden_}, zeros())});
  }
  Id dropped(const Segment& s, Id x) const {
    return dropout_ == 0 ? x : s.op("dropout", {x, s.samples(), s.runtime("seed")}, {{"p", dropout_}});
  }

  Id attention(const Segment& s, Id x) const {
    const Dim packed{"packed", 3}, queries{"queries", 1};
    const Id qkv =
        s.op("linear", {x,
                        s.matrix(s.weight("qkv", {heads_, packed, head_dim_, hidden_}, normal(deviation)),
                                 {.batch = 1, .columns = 1, .cuts = {1, 2}}),
                        none});
    const std::vector<Id> heads = s.ops("split_heads", {qkv}, 3);
    return s.op(
        "linear",
        {s.op("attention", {heads[0], heads[1], heads[2]}),
         s.matrix(s.weight("proj", {hidden_, heads_, queries, head_dim_}, normal(deviation)), {.columns = 3}),
         none},
        {{"in_dims", 3}});
  }

  // All positions look at all of the value that is carried.
  Id across(const Segment& s, Id x, Id carried) const {
    const Dim queries{"queries", 1};
    const Id q = linear(s, x, "across.q", {heads_, queries, head_dim_, hidden_}),
             k = linear(s, carried, "across.k", {heads_, head_dim_, wide_}),
             v = linear(s, carried, "across.v", {heads_, head_dim_, wide_});
    return s.op("linear",
                {s.op("attention_across", {q, k, v}, {{"causal", 0}}),
                 s.weight("across.proj", {hidden_, heads_, queries, head_dim_}, normal(deviation)), none},
                {{"in_dims", 3}});
  }

  void layer(const Segment& s, std::initializer_list<Id> read) const {
    const Id x = s.op("add", {s.incoming(), dropped(s, attention(s, norm(s, s.incoming(), "norm1")))});
    const Id z = s.op("add", {x, across(s, norm(s, x, "norm2"), *read.begin())});
    const Id up = linear(s, norm(s, z, "norm3"), "up", {ffn_, hidden_});
    const Id y = s.op("add", {z, linear(s, s.op("gelu", {up}), "down", {hidden_, ffn_})});
    s.outgoing(read.size() > 1 ? s.op("add", {y, read.begin()[1]}) : y);
  }

  void head(const Segment& s, Id table, Id kinds, Id seen) const {
    const Id kind = s.op("embedding", {kinds, weight(s, "kind", {{"types", 2}, hidden_})});
    const Id x = s.op("add", {s.op("add", {norm(s, s.incoming(), "norm"), kind}), seen});
    s.op("lm_head", {x, tied_ ? s.tie(table) : weight(s, "weight", {vocab_, hidden_}), s.targets(),
                     s.runtime("inv_targets"), s.runtime("loss_sum")});
  }

  std::int64_t layers_;
  Dim hidden_, heads_, head_dim_, ffn_, vocab_;
  Dim wide_{"wide", 2 * hidden_.extent};
  bool tied_;
  double dropout_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(model, prun::Relay, "relay", "0.1.0", "Values that segments carry for all behind them", "",
            "layers | int | 1 | 1.. | Layers of each half\n"
            "hidden | int | 8 | 1.. | Width of what is handed on\n"
            "heads | int | 2 | 1.. | Attention heads\n"
            "ffn | int | 8 | 1.. | Width in a layer\n"
            "vocab | int | 32 | 2.. | Words\n"
            "tied | bool | false | | The head shares the token table\n"
            "dropout | float | 0 | 0..0.9 | Probability after attention\n");
