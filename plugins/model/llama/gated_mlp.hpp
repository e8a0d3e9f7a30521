// Builds an MLP with a gate: its first projection has two halves, of which one, through silu or gelu, weights
// the other.
#pragma once

#include "family.hpp"
#include "layer_weights.hpp"
#include "part.hpp"
#include "prun/model.hpp"

namespace prun {

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
