// Holds what models write alike: widths as options name them, a table of positions, dropout, and the
// sublayers of models with biases and layernorm, GPT-2 and BERT.
#pragma once

#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// Holds widths where every head is as wide as the others and all of them together as the residual stream.
struct Widths {
  Dim hidden, heads, ffn, vocab, head_dim;

  explicit Widths(const Options& options)
      : hidden{"hidden", options.integer("hidden")},
        heads{"heads", options.integer("heads")},
        ffn{"ffn", options.integer("ffn") ? options.integer("ffn") : 4 * hidden.extent},
        vocab{"vocab", options.integer("vocab")},
        head_dim{"head_dim", hidden.extent / heads.extent} {
    if (hidden.extent % heads.extent != 0)
      throw_error(ErrorCode::bad_input, "model.hidden = ", hidden.extent,
                  " is not a multiple of model.heads = ", heads.extent);
  }

  // Read and write them and the number of layers as files of BERT and its successors name them.
  static void read_config(const Options& config, ConfigWriter& options) {
    options.set("layers", config.integer("num_hidden_layers"));
    options.set("hidden", config.integer("hidden_size"));
    options.set("heads", config.integer("num_attention_heads"));
    options.set("ffn", config.integer("intermediate_size"));
    options.set("vocab", config.integer("vocab_size"));
  }
  void write_config(std::int64_t layers, ConfigWriter& config) const {
    config.set("num_hidden_layers", layers);
    config.set("hidden_size", hidden.extent);
    config.set("num_attention_heads", heads.extent);
    config.set("intermediate_size", ffn.extent);
    config.set("vocab_size", vocab.extent);
  }

  // One weight gives queries, keys and values, grouped by head, so that sharding `heads` shards all three.
  Id packed_weight(const Segment& s, const Init& init) const {
    return s.matrix(s.weight("qkv.weight", {heads, {"packed", 3}, head_dim, hidden}, init),
                    {.batch = 1, .columns = 1, .cuts = {1, 2}});
  }
  // Brings what the heads have seen into the residual stream.
  Id projected(const Segment& s, Id seen, const Init& init, bool biased) const {
    const Id weight =
        s.matrix(s.weight("proj.weight", {hidden, heads, {"queries", 1}, head_dim}, init), {.columns = 3});
    return s.op("linear", {seen, weight, biased ? s.vector("proj.bias", {hidden}, zeros()) : none},
                {{"in_dims", 3}});
  }
};

// Has a row for each position; as many as the option says or, where that is 0, as a sequence has.
struct PositionTable {
  std::int64_t said;

  Dim rows(const ModelContext& context) const {
    if (said > 0 && said < context.seq)
      throw_error(ErrorCode::bad_input, "model.seq = ", context.seq,
                  " is more than model.positions = ", said);
    return {"positions", said ? said : context.seq};
  }
};

// Returns the attribute `stream` of ops that drop: `place` tells the places of a layer apart, and what stands
// above its 16 bits the layers of segments, each of which numbers its own from 0.
inline AttrValue drop_stream(const Segment& s, int place) {
  std::int64_t before = 0;
  for (const Segment& other : s.program().segments())
    if (other.id() > 0 && other.id() < s.id()) before += other.info().repeat;
  return {"stream", static_cast<double>((before << 16) + place)};
}

// Applies dropout; `place` tells the places of a layer apart.
struct Dropout {
  double probability;

  Id of(const Segment& s, Id x, int place) const {
    if (probability == 0) return x;
    return s.op("dropout", {x, s.samples(), s.runtime("seed")}, {{"p", probability}, drop_stream(s, place)});
  }
};

// Drops weights of attention, whose heads have streams from 256 on.
struct AttentionDropout {
  double probability;

  // Returns attention of queries, keys and values, and of sinks if there are any.
  Id of(const Segment& s, const std::vector<Id>& apart, std::vector<AttrValue> attrs, Id sinks = none) const {
    if (probability == 0)
      return s.insert_forward(none, "attention", {apart[0], apart[1], apart[2], none, sinks}, 1, attrs)[0];
    attrs.insert(attrs.end(), {{"p", probability}, drop_stream(s, 256)});
    return s.insert_forward(none, "attention",
                            {apart[0], apart[1], apart[2], none, sinks, s.samples(), s.runtime("seed")}, 1,
                            attrs)[0];
  }
};

struct LayerNorm {
  double eps;

  Id of(const Segment& s, Id x, const std::string& name, const Dim& width) const {
    return s.op("layernorm",
                {x, s.vector(name + ".gain", {width}, ones()), s.vector(name + ".bias", {width}, zeros())},
                {{"eps", eps}});
  }
};

// Builds attention and MLP with biases. Projections into the residual stream may start smaller than others.
struct BiasedSublayers {
  const Widths& widths;
  Init inner, residual;
  AttentionDropout dropout;

  Id attention(const Segment& s, Id x, bool causal) const {
    const Id weight = widths.packed_weight(s, inner);
    const Id bias = s.vector("qkv.bias", {widths.heads, {"packed", 3}, widths.head_dim}, zeros());
    const std::vector<Id> of = s.ops("split_heads", {s.op("linear", {x, weight, bias})}, 3);
    return widths.projected(s, dropout.of(s, of, {{"causal", causal ? 1.0 : 0.0}}), residual, true);
  }
  Id mlp(const Segment& s, Id x, const char* activation) const {
    const auto& [hidden, heads, ffn, vocab, head_dim] = widths;
    const Id up = s.op("linear", {x, s.matrix(s.weight("up.weight", {ffn, hidden}, inner), {.columns = 1}),
                                  s.vector("up.bias", {ffn}, zeros())});
    return s.op("linear", {s.op(activation, {up}),
                           s.matrix(s.weight("down.weight", {hidden, ffn}, residual), {.columns = 1}),
                           s.vector("down.bias", {hidden}, zeros())});
  }
};

// Adds the names of tensors in others' files, one by one.
class WeightNames {
 public:
  explicit WeightNames(ForeignWeights& weights, std::string prefix = {})
      : weights_(weights), prefix_(std::move(prefix)) {}

  void add(const std::string& parameter, const std::string& name, const char* dims = "") const {
    weights_.tensors.push_back({parameter, prefix_ + name, dims});
  }
  // Adds the names of a layernorm's weights.
  void add_norm(const std::string& norm, const std::string& name) const {
    add(norm + ".gain", name + ".weight");
    add(norm + ".bias", name + ".bias");
  }

 private:
  ForeignWeights& weights_;
  std::string prefix_;
};

}  // namespace prun
