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
    const Id up = s.op("linear", {x, weight, none});
    return s.op("linear", {s.op(family.gelu ? "geglu" : "swiglu", {up}),
                           s.matrix(s.weight("down.weight", {hidden, ffn}), {.columns = 1}), none});
  }

  // Both halves of the first projection are, but for Phi-3, tensors of their own in the files.
  static void add_weights(const Family& family, const LayerWeights& weights) {
    const bool fused = family.fused_files;
    const char *const first = fused ? "mlp.gate_up_proj.weight" : "mlp.gate_proj.weight",
                      *const second = fused ? "mlp.gate_up_proj.weight" : "mlp.up_proj.weight";
    weights.add("up.weight", first, "gate ffn, hidden", "gate", 0, 1);
    weights.add("up.weight", second, "gate ffn, hidden", "gate", 1, 2);
    weights.add("down.weight", "mlp.down_proj.weight");
  }
};

}  // namespace prun
