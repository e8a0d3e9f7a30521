// Describes what some layers have in the place of an MLP: a router that chooses some of many small MLPs for
// each position, and perhaps one MLP that all positions share.
#pragma once

#include "expert_capacity.hpp"
#include "expert_router.hpp"
#include "family.hpp"
#include "layer_weights.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "shared_expert.hpp"
#include "sparse_layers.hpp"

namespace prun {

class ExpertLayers {
 public:
  ExpertLayers(const Family& family, const Options& options);

  bool any() const { return experts_ > 0; }
  // Says whether a layer has experts rather than an MLP.
  bool has(std::int64_t layer) const { return any() && sparse_.has(layer); }
  // Throws where the options of `layers` layers contradict each other.
  void check(std::int64_t layers) const;
  // x is the layer's input, normed: sequences of `seq` positions.
  Id build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const;

  // These are in experts_files.cpp.
  static void read_config(const Options& config, const Family& family, ConfigWriter& options);
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
  // Returns what a config.json calls `intermediate_size`; `ffn` is the width of an MLP that is no expert.
  std::int64_t file_width(const Family& family, std::int64_t ffn) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;

 private:
  void add_biased_weights(const LayerWeights& weights) const;
  // Returns what the chosen come to. Those with biases are bounded where there is a limit.
  Id build_chosen(const SegmentPart& s, const Dim& hidden, Id x, const ChosenExperts& chosen) const;

  std::int64_t experts_, ffn_;
  bool biased_;           // says that router and experts have biases
  double limit_, alpha_;  // bound their activations, as in gpt-oss; 0: nothing does
  SparseLayers sparse_;
  ExpertRouter router_;
  ExpertCapacity capacity_;
  SharedExpert shared_;
};

}  // namespace prun
