// Builds the MLP that all positions of a layer with experts pass, beside those that are chosen for them.
#pragma once

#include "expert_names.hpp"
#include "layer_weights.hpp"
#include "part.hpp"
#include "prun/model.hpp"

namespace prun {

struct SharedExpert {
  std::int64_t ffn;  // 0: there is none
  bool gate;         // weights what it gives

  explicit SharedExpert(const Options& options)
      : ffn(options.integer("shared_ffn")), gate(options.flag("shared_gate")) {}

  bool present() const { return ffn > 0; }
  // Throws where options contradict each other.
  void check() const;
  // x is the layer's input, normed.
  Id build(const SegmentPart& s, const Dim& hidden, Id x) const;

  // `expert_ffn` is the width of each of the others.
  void write_config(const Family& family, std::int64_t expert_ffn, ConfigWriter& config) const;
  void add_weights(const ExpertNames& names, const LayerWeights& weights) const;
};

}  // namespace prun
