#include "t5.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

T5::T5(const Options& options)
    : layers_(options.integer("layers")),
      decoder_layers_(options.integer("decoder_layers") ? options.integer("decoder_layers") : layers_),
      said_inputs_(options.integer("inputs")),
      hidden_{"hidden", options.integer("hidden")},
      heads_{"heads", options.integer("heads")},
      head_dim_{"head_dim", options.integer("head_dim")},
      ffn_{"ffn", options.integer("ffn")},
      vocab_{"vocab", options.integer("vocab")},
      buckets_{"buckets", options.integer("buckets")},
      distance_(options.integer("distance")),
      dropout_{options.number("dropout")},
      eps_(options.number("norm_eps")) {}

void T5::build(const ModelContext& context, ProgramRef program) {
  seq_ = context.seq;
  inputs_ = said_inputs_ > 0 ? said_inputs_ : std::max<std::int64_t>(1, seq_ / 2);
  if (inputs_ >= seq_ && seq_ > 1)
    throw_error(ErrorCode::bad_input, "model.inputs = ", inputs_, " leaves nothing of model.seq = ", seq_,
                " to the decoder");
  const Segment embedding = program.segment("embedding");
  const Id table = embedding.weight("token", {vocab_, hidden_}, normal(1.0));
  const Id x = embedding.op("embedding", {encoders(embedding, embedding.tokens()), table});
  const Shared of_encoder{distances(embedding), none};
  embedding.outgoing(dropout_.of(embedding, x, 0));
  layer(program.segment("encoder", layers_), of_encoder);

  const Segment bridge = program.segment("bridge");
  Shared of_decoder;
  of_decoder.memory = bridge.carry(dropout_.of(bridge, norm(bridge, bridge.incoming(), "norm"), 0));
  of_decoder.distances = distances(bridge);
  const Id y = bridge.op("embedding", {decoders(bridge, bridge.tokens()), bridge.tie(table)});
  bridge.outgoing(dropout_.of(bridge, y, 1));
  layer(program.segment("decoder", decoder_layers_), of_decoder);

  const Segment head = program.segment("head");
  const Id last = dropout_.of(head, norm(head, head.incoming(), "norm"), 0);
  head.op("lm_head", {last, head.weight("weight", {vocab_, hidden_}, scaled(hidden_)),
                      decoders(head, head.targets()), head.runtime("inv_targets"), head.runtime("loss_sum")});
}

Id T5::encoders(const Segment& s, Id numbers) const {
  return s.op("take_part", {numbers}, {{"dim", 1}, {"begin", 0}, {"end", static_cast<double>(inputs_)}});
}
// A caller that wants the shapes of weights alone passes a single token.
Id T5::decoders(const Segment& s, Id numbers) const {
  if (seq_ == 1) return numbers;
  return s.op("take_part", {numbers},
              {{"dim", 1}, {"begin", static_cast<double>(inputs_)}, {"end", static_cast<double>(seq_)}});
}

// Returns the table itself, which is carried to all layers of its half.
Id T5::distances(const Segment& s) const {
  const Id table = s.weight("distances", {heads_, buckets_}, scaled(hidden_));
  return s.carry(s.op("scale", {table}, {{"factor", 1.0}}));
}

void T5::layer(const Segment& s, const Shared& shared) const {
  const bool decodes = shared.memory != none;
  Id x = s.incoming();
  x = added(s, x, self_attention(s, norm(s, x, "norm1"), shared.distances, decodes), 0);
  if (decodes) x = added(s, x, cross_attention(s, norm(s, x, "norm_across"), shared.memory), 1);
  s.outgoing(added(s, x, mlp(s, norm(s, x, "norm2")), 2));
}

// Scores are not divided by the root of head_dim, so queries and keys start smaller, each by its root.
Id T5::self_attention(const Segment& s, Id x, Id distances, bool causal) const {
  const Dim packed{"packed", 3};
  const double root = std::sqrt(static_cast<double>(head_dim_.extent));
  const Id weight = s.matrix(s.weight("qkv.weight", {heads_, packed, head_dim_, hidden_},
                                      scaled(static_cast<double>(hidden_.extent) * root)),
                             {.batch = 1, .columns = 1, .cuts = {1, 2}});
  const std::vector<Id> heads = s.ops("split_heads", {s.op("linear", {x, weight, none})}, 3);
  const Id seen = s.op("attention_biased", {heads[0], heads[1], heads[2], distances},
                       {{"causal", causal ? 1.0 : 0.0}, {"distance", static_cast<double>(distance_)}});
  return projected(s, "proj.weight", seen);
}

// Scores are not divided by the root of head_dim, as that op would do.
Id T5::cross_attention(const Segment& s, Id x, Id memory) const {
  const Dim queries{"queries", 1};
  const auto hidden = static_cast<double>(hidden_.extent), head_dim = static_cast<double>(head_dim_.extent);
  const auto weight = [&](const char* name, const std::vector<Dim>& dims, double width) {
    return s.matrix(s.weight(name, dims, scaled(width)), {.columns = 1});
  };
  const Id q =
      s.op("linear", {x, weight("across.q", {heads_, queries, head_dim_, hidden_}, hidden * head_dim), none});
  const Id k = s.op("linear", {memory, weight("across.k", {heads_, head_dim_, hidden_}, hidden), none});
  const Id v = s.op("linear", {memory, weight("across.v", {heads_, head_dim_, hidden_}, hidden), none});
  const double root = std::sqrt(head_dim);
  const Id scaled_q = s.op("scale", {q}, {{"factor", root}});
  return projected(s, "across.proj", s.op("attention_across", {scaled_q, k, v}, {{"causal", 0}}));
}

Id T5::projected(const Segment& s, const std::string& name, Id heads) const {
  const Dim queries{"queries", 1};
  const Id weight = s.matrix(s.weight(name, {hidden_, heads_, queries, head_dim_},
                                      scaled(static_cast<double>(heads_.extent * head_dim_.extent))),
                             {.columns = 3});
  return s.op("linear", {heads, weight, none}, {{"in_dims", 3}});
}

Id T5::mlp(const Segment& s, Id x) const {
  const Id up = s.matrix(s.weight("up.weight", {{"gate", 2}, ffn_, hidden_}, scaled(hidden_)),
                         {.columns = 1, .cuts = {1}});
  const Id down = s.matrix(s.weight("down.weight", {hidden_, ffn_}, scaled(ffn_)), {.columns = 1});
  return s.op("linear", {dropout_.of(s, s.op("geglu", {s.op("linear", {x, up, none})}), 3), down, none});
}

Id T5::norm(const Segment& s, Id x, const std::string& name) const {
  return s.op("rmsnorm", {x, s.vector(name + ".gain", {hidden_}, ones())}, {{"eps", eps_}});
}

Id T5::added(const Segment& s, Id x, Id y, int stream) const {
  return s.op("add", {x, dropout_.of(s, y, stream)});
}

Init T5::scaled(double width) const { return normal(1 / std::sqrt(width)); }
Init T5::scaled(const Dim& width) const { return scaled(static_cast<double>(width.extent)); }

}  // namespace prun

PRUN_PLUGIN(
    model, prun::T5, "t5", "0.1.0", "T5 1.1: an encoder and a decoder, relative positions, gated gelu",
    "reads=t5; predicts=spans; inputs=inputs; also=encoder-decoder,seq2seq",
    "inputs   | int   | 0     | 0..16777216 | Tokens of a sample that are the encoder's, and the others the "
    "decoder's: what data.spans comes to, which prun check says\n"
    "layers   | int   | 12    | 1..100000   | Layers of the encoder\n"
    "decoder_layers | int | 0 | 0..100000   | Layers of the decoder; 0: as many\n"
    "hidden   | int   | 768   | 1..1048576  | Width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads\n"
    "head_dim | int   | 64    | 1..65536    | Width of a head\n"
    "ffn      | int   | 2048  | 1..4194304  | Width of the MLP\n"
    "vocab    | int   | 32128 | 2..16777216 | Rows of the token table\n"
    "buckets  | int   | 32    | 4..65536    | Of relative positions\n"
    "distance | int   | 128   | 2..16777216 | From which on all positions are in the last bucket\n"
    "dropout  | float | 0     | 0..0.95     | Probability after embeddings, sublayers and norms at the end\n"
    "norm_eps | float | 1e-6  | 0..1        | Added to the mean square in rmsnorm\n");
