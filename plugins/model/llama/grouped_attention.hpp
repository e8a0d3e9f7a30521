// Builds attention whose heads come in groups, each of which has one key and one value for all of its
// queries.
#pragma once

#include <optional>
#include <string>

#include "blocks.hpp"
#include "family.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "rope.hpp"
#include "special_tokens.hpp"

namespace prun {

// ------------------------------------------------------------------- residual stream
// Describes the residual stream, which every block reads and adds to: its width, how tokens enter it, and the
// norms that a family has on it.

struct ResidualStream {
  Family family;
  Dim hidden;
  double eps;
  double embedding_scale, residual_scale;
  SpecialTokens tokens;

  ResidualStream(const Family& of, const Options& options);

  Id embedded(const SegmentPart& s, Id numbers, Id table) const;
  // Returns a sub-layer's input: x, or its norm where the family has one there.
  Id input_of(const SegmentPart& s, Id x, const char* norm_name) const;
  // Adds a sub-layer's output, or its norm where the family has one there, times residual_scale.
  Id added(const SegmentPart& s, Id x, const char* norm_name, Id output) const;

  Id norm(const SegmentPart& s, Id x, const std::string& name) const;
  // Norms the last `dims` dimensions of x as one row.
  Id norm(const SegmentPart& s, Id x, Id gain, int dims) const;
  Init gains() const { return family.gain_from_one ? zeros() : ones(); }

  // Writes what embeddings and outputs of sub-layers are multiplied by.
  void write_scales(ConfigWriter& config) const;
  // Adds the norms around both sub-layers of a block.
  void add_norms(const LayerWeights& weights) const;

 private:
  static Id scaled(const SegmentPart& s, Id x, double factor);
  bool normed(NormPlace there) const { return family.norms == there || family.norms == NormPlace::around; }
};

// ------------------------------------------------------------------- grouped attention

struct GroupedAttention {
  std::int64_t heads;
  Dim groups, head_dim;
  double query_scalar;  // scores are divided by its root; 0: head_dim
  double softcap;       // bounds scores; 0: they stay as they are
  AttentionDropout dropout;

  explicit GroupedAttention(const Options& options);
  // Throws where options contradict each other.
  void check(const Options& options) const;

  // x is the layer's input, normed; without `rope` positions do not turn. A position sees `window` positions
  // at most, or all before it where that is 0.
  Id build(const SegmentPart& s, const ResidualStream& stream, const std::optional<Rope>& rope, Id x,
           double window) const;

  // Writes what scores are divided by.
  void write_query_scalar(const Family& family, ConfigWriter& config) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;
  // Adds the norms of queries and keys.
  void add_head_norms(const Family& family, const LayerWeights& weights) const;

 private:
  Dim queries() const { return {"queries", heads / groups.extent}; }
  // Counts slots of queries of a group's projection, where each may have a gate behind it.
  std::int64_t query_slots(const Family& family) const {
    return (family.gated_attention ? 2 : 1) * queries().extent;
  }
  // Sets `gates` where queries have some.
  Id normed_heads(const SegmentPart& s, const ResidualStream& stream, Id packed, Id& gates) const;
  // Norms queries and keys, the first two of three.
  void norm_apart(const SegmentPart& s, const ResidualStream& stream, std::vector<Id>& apart) const;
  std::vector<Id> turned_heads(const SegmentPart& s, const std::optional<Rope>& rope, Id packed) const;
};

// ------------------------------------------------------------------- gated mlp
// Builds an MLP with a gate: its first projection has two halves, of which one, through silu or gelu, weights
// the other.

struct GatedMlp {
  Dim ffn;

  explicit GatedMlp(const Options& options) : ffn{"ffn", options.integer("ffn")} {}

  Id build(const SegmentPart& s, const Family& family, const Dim& hidden, Id x) const {
    const Dim gate{"gate", 2};
    const Id weight = s.matrix(s.weight("up.weight", {gate, ffn, hidden}), {.batch = 1, .columns = 1});
    const auto bias = [&](const char* name, std::initializer_list<Dim> dims) {
      return family.biases.mlp ? s.vector(name, dims, zeros()) : none;
    };
    const Id up = s.op("linear", {x, weight, bias("up.bias", {gate, ffn})});
    return s.op("linear", {s.op(family.gelu ? "geglu" : "swiglu", {up}),
                           s.matrix(s.weight("down.weight", {hidden, ffn}), {.columns = 1}),
                           bias("down.bias", {hidden})});
  }

  // Both halves of the first projection are, in most families, tensors of their own in the files.
  static void add_weights(const Family& family, const LayerWeights& weights) {
    const std::string first = family.fused_up ? "mlp.gate_up_proj" : "mlp.gate_proj",
                      second = family.fused_up ? "mlp.gate_up_proj" : "mlp.up_proj";
    weights.add("up.weight", first + ".weight", "gate ffn, hidden", "gate", 0, 1);
    weights.add("up.weight", second + ".weight", "gate ffn, hidden", "gate", 1, 2);
    weights.add("down.weight", "mlp.down_proj.weight");
    if (!family.biases.mlp) return;
    weights.add("up.bias", first + ".bias", "gate ffn", "gate", 0, 1);
    weights.add("up.bias", second + ".bias", "gate ffn", "gate", 1, 2);
    weights.add("down.bias", "mlp.down_proj.bias");
  }
};

}  // namespace prun
