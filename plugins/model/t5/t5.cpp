#include "t5.hpp"

#include <algorithm>

#include "scaled.hpp"

namespace prun {

T5::T5(const Options& options)
    : layers_(options.integer("layers")),
      decoder_layers_(options.integer("decoder_layers") ? options.integer("decoder_layers") : layers_),
      said_inputs_(options.integer("inputs")),
      hidden_{"hidden", options.integer("hidden")},
      ffn_{"ffn", options.integer("ffn")},
      vocab_{"vocab", options.integer("vocab")},
      attention_(options),
      dropout_{options.number("dropout")},
      eps_(options.number("norm_eps")),
      tokens_(options),
      start_(options.integer("start_token")) {}

void T5::build(const ModelContext& context, ProgramRef program) {
  seq_ = context.seq;
  inputs_ = said_inputs_ > 0 ? said_inputs_ : std::max<std::int64_t>(1, seq_ / 2);
  if (inputs_ >= seq_ && seq_ > 1)
    throw_error(ErrorCode::bad_input, "model.inputs = ", inputs_, " leaves nothing of model.seq = ", seq_,
                " to the decoder");
  const Segment embedding = program.segment("embedding");
  const Id table = embedding.weight("token", {vocab_, hidden_}, normal(1.0));
  const Id x = embedding.op("embedding", {encoders(embedding, embedding.tokens()), table});
  const Shared of_encoder{attention_.table(embedding), none};
  embedding.outgoing(dropout_.of(embedding, x, 0));
  layer(program.segment("encoder", layers_), of_encoder);

  const Segment bridge = program.segment("bridge");
  Shared of_decoder;
  of_decoder.memory = bridge.carry(dropout_.of(bridge, norm(bridge, bridge.incoming(), "norm"), 0));
  of_decoder.table = attention_.table(bridge);
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

void T5::layer(const Segment& s, const Shared& shared) const {
  const bool decodes = shared.memory != none;
  Id x = s.incoming();
  x = added(s, x, attention_.among(s, norm(s, x, "norm1"), shared.table, decodes), 0);
  if (decodes) x = added(s, x, attention_.across(s, norm(s, x, "norm_across"), shared.memory), 1);
  s.outgoing(added(s, x, mlp(s, norm(s, x, "norm2")), 2));
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

}  // namespace prun

PRUN_PLUGIN(
    model, prun::T5, "t5", "0.1.0", "T5 1.1: an encoder and a decoder, relative positions, gated gelu",
    "reads=t5; predicts=spans; inputs=inputs; also=encoder-decoder,seq2seq",
    "inputs   | int   | 0     | 0..16777216 | Tokens of a sample that go to the encoder; the others go to "
    "the decoder; data.spans determines the number, and prun check prints it\n"
    "layers   | int   | 12    | 1..100000   | Layers of the encoder\n"
    "decoder_layers | int | 0 | 0..100000   | Layers of the decoder; 0: as many as of the encoder\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads\n"
    "head_dim | int   | 64    | 1..65536    | Channels of a head\n"
    "ffn      | int   | 2048  | 1..4194304  | Width of the MLP\n"
    "vocab    | int   | 32128 | 2..16777216 | Vocabulary size\n"
    "buckets  | int   | 32    | 4..65536    | Number of relative position buckets\n"
    "distance | int   | 128   | 2..16777216 | Distance from which on all positions share the last bucket\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after embeddings, sublayers and final "
    "norms\n"
    "norm_eps | float | 1e-6  | 0..1        | Epsilon added to the mean square in rmsnorm\n"
    "start_token | int | 0    | 0..2147483647 | Token that starts the decoder's input, for exports; training "
    "uses data.span_start\n" PRUN_SPECIAL_TOKENS_OPTIONS("[1]", "0"));
