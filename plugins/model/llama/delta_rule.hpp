// Describes what some layers have in the place of attention: the gated delta rule, behind a short
// convolution, with a norm and a gate on what each head gives (Qwen3-Next).
#pragma once

#include "grouped_attention.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "windows.hpp"

namespace prun {

struct DeltaRuleLayers {
  std::int64_t layers;     // of the model
  LayersInTurn attending;  // if there are none, all attend
  std::int64_t key_heads, value_heads;
  Dim key_dim, value_dim, taps;
  Dim groups;  // the first dimension of key heads: as many as groups of attention's, where that divides them

  // `groups` counts those of attention.
  DeltaRuleLayers(std::int64_t groups, const Options& options);
  // Throws where options contradict each other.
  void check() const;

  bool any() const { return attending.any(); }
  bool has(std::int64_t layer) const { return any() && layer < layers && !attending.has(layer); }
  // x is the layer's input, normed.
  Id build(const SegmentPart& s, const ResidualStream& stream, Id x) const;

  static void read_config(const Options& config, const Family& family, ConfigWriter& options);
  void write_config(const Family& family, ConfigWriter& config) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;

 private:
  // Returns how many values a key head has, and how many channels of it pass the convolution.
  std::int64_t of_head() const { return value_heads / key_heads; }
  std::int64_t channels() const { return 2 * key_dim.extent + of_head() * value_dim.extent; }
  // Counts heads of a group; the dimension has the name of what attention's groups have.
  Dim keys() const { return {"queries", key_heads / groups.extent}; }
  Dim values() const { return {"queries", value_heads / groups.extent}; }
  Dim mixed() const { return {"mixed", channels() + of_head() * value_dim.extent}; }
};

}  // namespace prun
