#include "llama.hpp"

namespace prun {

Llama::Llama(const Options& options)
    : layers_(options.integer("layers")),
      hidden_{"hidden", options.integer("hidden")},
      heads_(options.integer("heads")),
      groups_{"heads", options.integer("kv_heads") ? options.integer("kv_heads") : heads_},
      head_dim_{"head_dim",
                options.integer("head_dim") ? options.integer("head_dim") : hidden_.extent / heads_},
      ffn_{"ffn", options.integer("ffn")},
      vocab_{"vocab", options.integer("vocab")},
      positions_(options.integer("positions")),
      tied_(options.flag("tied")),
      qkv_bias_(options.flag("qkv_bias")),
      rope_base_(options.number("rope_base")),
      rope_factor_(options.number("rope_factor")),
      rope_low_(options.number("rope_low")),
      rope_high_(options.number("rope_high")),
      rope_original_(options.number("rope_original")),
      eps_(options.number("norm_eps")) {
  if (heads_ % groups_.extent != 0)
    throw_error(ErrorCode::bad_input, "model.heads = ", heads_,
                " is not a multiple of model.kv_heads = ", groups_.extent);
  if (options.integer("head_dim") == 0 && hidden_.extent % heads_ != 0)
    throw_error(ErrorCode::bad_input, "model.hidden = ", hidden_.extent,
                " is not a multiple of model.heads = ", heads_, "; set model.head_dim");
  if (head_dim_.extent % 2 != 0)
    throw_error(ErrorCode::bad_input, "model.head_dim = ", head_dim_.extent,
                " is odd; rotary positions turn pairs");
  if (rope_low_ >= rope_high_)
    throw_error(ErrorCode::bad_input, "model.rope_low = ", rope_low_,
                " is not below model.rope_high = ", rope_high_);
}

void Llama::build(const ModelContext&, ProgramRef program) {
  const Segment embedding = program.segment("embedding");
  const Id table = embedding.weight("token", {vocab_, hidden_}, normal(0.02));
  embedding.outgoing(embedding.op("embedding", {embedding.tokens(), table}));
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

void Llama::block(const Segment& s) const {
  const Id x = s.incoming();
  const Id after_attention = s.op("add", {x, attention(s, norm(s, x, "norm1"))});
  s.outgoing(s.op("add", {after_attention, mlp(s, norm(s, after_attention, "norm2"))}));
}

// Packed by key-value head: its queries, its key, its value.
Id Llama::attention(const Segment& s, Id x) const {
  const Dim queries{"queries", heads_ / groups_.extent}, packed{"packed", queries.extent + 2};
  const Id weight = s.matrix(s.weight("qkv.weight", {groups_, packed, head_dim_, hidden_}, normal(0.02)),
                             {.batch = 1, .columns = 1, .cuts = {queries.extent, queries.extent + 1}});
  const Id bias = qkv_bias_ ? s.vector("qkv.bias", {groups_, packed, head_dim_}, zeros()) : none;
  const std::vector<Id> heads = s.ops("rope", {s.op("linear", {x, weight, bias})}, 3,
                                      {{"base", rope_base_},
                                       {"factor", rope_factor_},
                                       {"low", rope_low_},
                                       {"high", rope_high_},
                                       {"original", rope_original_}});
  return s.op("linear",
              {s.op("attention", {heads[0], heads[1], heads[2]}),
               s.matrix(s.weight("proj.weight", {hidden_, groups_, queries, head_dim_}, normal(0.02)),
                        {.columns = 3}),
               none},
              {{"in_dims", 3}});
}

Id Llama::mlp(const Segment& s, Id x) const {
  const Dim gate{"gate", 2};
  const Id weight =
      s.matrix(s.weight("up.weight", {gate, ffn_, hidden_}, normal(0.02)), {.batch = 1, .columns = 1});
  const Id up = s.op("linear", {x, weight, none});
  return s.op("linear",
              {s.op("swiglu", {up}),
               s.matrix(s.weight("down.weight", {hidden_, ffn_}, normal(0.02)), {.columns = 1}), none});
}

void Llama::head(const Segment& s, Id table) const {
  const Id x = norm(s, s.incoming(), "norm");
  const Id weight = tied_ ? s.tie(table) : s.weight("weight", {vocab_, hidden_}, normal(0.02));
  s.op("lm_head", {x, weight, s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum")});
}

Id Llama::norm(const Segment& s, Id x, const std::string& name) const {
  return s.op("rmsnorm", {x, s.vector(name + ".gain", {hidden_}, ones())}, {{"eps", eps_}});
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::Llama, "llama", "0.1.0", "Llama 3 and Qwen2: rotary positions, RMSNorm, SwiGLU, GQA",
    "reads=llama,qwen2; also=llama2,llama3,qwen,qwen2",
    "layers    | int   | 32     | 1..100000   | Number of transformer blocks\n"
    "hidden    | int   | 4096   | 1..1048576  | Width of the residual stream\n"
    "heads     | int   | 32     | 1..65536    | Query heads\n"
    "kv_heads  | int   | 0      | 0..65536    | Key and value heads; divides heads; 0: as many as heads\n"
    "head_dim  | int   | 0      | 0..1024     | Width of a head; 0: hidden / heads\n"
    "ffn       | int   | 14336  | 1..4194304  | Width of the MLP\n"
    "vocab     | int   | 128256 | 2..16777216 | Rows of the token table\n"
    "tied      | bool  | false  |             | The head shares the token table\n"
    "qkv_bias  | bool  | false  |             | Biases on queries, keys and values (Qwen2)\n"
    "rope_base | float | 500000 | 1..1e12     | Base of the rotary frequencies\n"
    "rope_factor | float | 1    | 1..1e6      | How much slower pairs turn that turned too slowly to be "
    "learned (Llama 3.1); 1: none\n"
    "rope_low  | float | 1      | 0..1e6      | Pairs are slowed down by all of rope_factor that turn round "
    "less often in rope_original\n"
    "rope_high | float | 4      | 0..1e6      | Pairs are not slowed down that turn round more often in "
    "rope_original\n"
    "rope_original | float | 8192 | 1..1e9    | Positions of the sequences that it was first trained on\n"
    "positions | int   | 0      | 0..1000000000 | Longest sequence that it is meant for, as an export says; "
    "0: model.seq\n"
    "norm_eps  | float | 1e-5   | 0..1        | Added to the mean square in rmsnorm\n");
