// Builds a block of the decoder: attention, and an MLP or experts, each between the norms of its family.
#pragma once

#include "delta_rule.hpp"
#include "experts.hpp"
#include "gated_mlp.hpp"
#include "grouped_attention.hpp"
#include "latent.hpp"
#include "residual_stream.hpp"
#include "rope.hpp"
#include "unturned.hpp"
#include "windows.hpp"

namespace prun {

// Says in what a layer differs from others.
struct LayerKind {
  bool windowed = false;
  bool unturned = false;  // says that its positions do not turn
  bool experts = false;   // says that they stand in the place of an MLP
  bool delta = false;     // says that the gated delta rule stands in the place of attention

  bool operator==(const LayerKind&) const = default;
};

struct DecoderBlock {
  ResidualStream stream;
  GroupedAttention attention;
  LatentAttention latent;  // where it is present, it takes the place of the other
  RopeConfig rope;
  WindowedLayers windows;
  UnturnedLayers unturned;
  DeltaRuleLayers delta;
  GatedMlp mlp;
  ExpertLayers experts;

  // Throws where options contradict each other.
  DecoderBlock(const Family& family, const Options& options);

  LayerKind kind_of(std::int64_t layer) const {
    if (delta.has(layer)) return {.experts = experts.has(layer), .delta = true};
    return {windows.has(layer), unturned.has(layer), experts.has(layer)};
  }
  // x is the residual stream: sequences of `seq` positions.
  Id build(const SegmentPart& s, LayerKind kind, std::int64_t seq, Id x) const;
  void add_weights(LayerKind kind, const LayerWeights& weights) const;

 private:
  void check_rope() const;
  Id build_attention(const SegmentPart& s, LayerKind kind, Id x) const;
};

}  // namespace prun
