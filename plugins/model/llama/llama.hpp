// Builds decoders of Llama's shape: rotary positions, RMSNorm, a gated MLP, grouped-query attention. A table
// (family.hpp) states what distinguishes its families.
#pragma once

#include <string>
#include <vector>

#include "delta_rule.hpp"
#include "experts.hpp"
#include "family.hpp"
#include "grouped_attention.hpp"
#include "latent.hpp"
#include "prun/plugin.hpp"
#include "rope.hpp"
#include "windows.hpp"

namespace prun {

// ------------------------------------------------------------------- decoder block
// Builds a block of the decoder: attention, and an MLP or experts, each between the norms of its family.

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

// ------------------------------------------------------------------- mtp
// Describes multi-token prediction, as DeepSeek-V3 is trained: modules behind the model, the k-th of which
// predicts for each position the token k + 1 ahead. It joins what the module before (the first: the model)
// has made of the position with the embedding of the token k ahead, and has a block and a norm of its own;
// table and head are the model's. All modules stand in the head's segment, so that a stage of a pipeline has
// them together. Their losses are no part of `loss_sum`, so runs that do not train leave them out.

class MultiTokenPrediction {
 public:
  explicit MultiTokenPrediction(const Options& options);

  bool any() const { return modules_ > 0; }
  // Throws where sequences are too short.
  void check(const ModelContext& context) const;

  // A module shares these with the model: its tables, and how long its sequences are.
  struct Shared {
    Id tokens, head;
    std::int64_t seq;
  };
  // `made` is the head's input.
  void build(const SegmentPart& head, const DecoderBlock& block, Id made, const Shared& shared) const;

  void write_config(const Family& family, ConfigWriter& config) const;
  void add_weights(const DecoderBlock& block, ForeignWeights& weights) const;

 private:
  // Returns the number of a module's block among the layers; modules are counted from 1.
  std::int64_t layer_of(std::int64_t k) const { return layers_ + k - 1; }
  Id build_module(const SegmentPart& s, const DecoderBlock& block, std::int64_t k, Id made,
                  const Shared& shared) const;

  std::int64_t modules_;
  double loss_;          // weights the mean of their losses
  std::int64_t layers_;  // of the model
};

// ------------------------------------------------------------------- llama

// Names layers that are alike and follow each other: a segment of the program.
struct LayerRun {
  std::string segment;
  std::int64_t first = 0, count = 0;
  LayerKind kind;
};

class Llama final : public Model {
 public:
  explicit Llama(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // read_config.cpp defines it.
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  std::vector<LayerRun> runs() const;
  void build_head(const SegmentPart& s, Id table, std::int64_t seq) const;

  Family family_;
  std::int64_t layers_;
  Dim vocab_;
  std::int64_t positions_;
  bool tied_;
  double logit_divisor_;
  double logit_softcap_;  // bounds logits; 0: they stay as they are
  double deviation_;      // that of initial weights
  DecoderBlock block_;
  MultiTokenPrediction mtp_;
};

}  // namespace prun
