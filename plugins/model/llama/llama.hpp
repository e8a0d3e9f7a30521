// Builds decoders of Llama's shape: rotary positions, RMSNorm, a gated MLP, grouped-query attention. A table
// (family.hpp) states what distinguishes its families: Llama 3, Qwen2 and Qwen3, Mistral, Gemma 3, OLMo 2,
// Phi-3, and with experts Mixtral, OLMoE, Qwen's, dots.llm1 and DeepSeek's.
#pragma once

#include <string>
#include <vector>

#include "experts.hpp"
#include "family.hpp"
#include "latent.hpp"
#include "part.hpp"
#include "prun/plugin.hpp"
#include "rope.hpp"

namespace prun {

// Names layers that are alike and follow each other: a segment of the program.
struct LayerRun {
  std::string segment;
  std::int64_t first = 0, count = 0;
  bool windowed = false;
  bool experts = false;  // says that they stand in the place of an MLP
};

// Says which layers see only a window of the positions before them.
struct WindowedLayers {
  std::int64_t window = 0;      // counts positions, its own among them; 0: no layer has one
  std::int64_t from = 0;        // the first layer that has one
  std::int64_t full_every = 0;  // each layer of such a number, counted from 1, sees all; 0: none

  bool has(std::int64_t layer) const {
    return window > 0 && layer >= from && (full_every == 0 || (layer + 1) % full_every != 0);
  }
};

// Describes the modules behind the last block in training: see mtp.cpp.
struct MultiTokenPrediction {
  std::int64_t layers = 0;
  double loss = 0;  // weights the mean of their losses
};

class Llama final : public Model {
 public:
  explicit Llama(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // Is in read_config.cpp.
  static void read_config(const Options& config, ConfigWriter& options);
  // Is in write_config.cpp.
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  // Is in weights.cpp.
  ForeignWeights foreign_weights() const override;

 private:
  void check() const;
  std::vector<LayerRun> runs() const;
  Id embedded(const SegmentPart& s, Id tokens, Id table) const;
  Id layer(const SegmentPart& s, const LayerRun& run, std::int64_t seq, Id x) const;
  Id add_sublayer(const SegmentPart& s, Id x, const char* norm, Id inner) const;
  Id attention(const SegmentPart& s, Id x, bool windowed) const;
  Id normed_heads(const SegmentPart& s, Id packed) const;
  Id mlp(const SegmentPart& s, Id x) const;
  void head(const Segment& s, Id table, std::int64_t seq) const;
  Id norm(const SegmentPart& s, Id x, const std::string& name) const;
  Id norm(const SegmentPart& s, Id x, Id gain, int dims) const;
  Init gains() const { return family_.gain_from_one ? zeros() : ones(); }
  Dim queries() const { return {"queries", heads_ / groups_.extent}; }
  bool normed(NormPlace there) const { return family_.norms == there || family_.norms == NormPlace::around; }
  // These are in mtp.cpp. A module shares these with the model: its tables, and how long its sequences are.
  struct Shared {
    Id tokens, head;
    std::int64_t seq;
  };
  LayerRun mtp_layer(std::int64_t k) const;
  void predict_ahead(const Segment& head, Id made, const Shared& shared) const;
  Id mtp_module(const SegmentPart& s, std::int64_t k, Id made, const Shared& shared) const;
  void add_mtp(ForeignWeights& weights) const;
  // These are in weights.cpp.
  void add_mlp(const LayerRun& run, ForeignWeights& weights) const;
  void add_layer(const LayerRun& run, ForeignWeights& weights) const;
  void add_norms(const LayerRun& run, ForeignWeights& weights) const;
  // These are in write_config.cpp.
  void write_windows(ConfigWriter& config) const;
  void write_mtp(ConfigWriter& config) const;

  const Family& family_;
  std::int64_t layers_;
  Dim hidden_;
  std::int64_t heads_;
  Dim groups_, head_dim_, ffn_, vocab_;
  std::int64_t positions_;
  bool tied_;
  Rope rope_;
  double rope_base_window_;  // that of windowed layers; 0: they turn as the others
  double query_scalar_;      // scores are divided by its root; 0: head_dim
  WindowedLayers windows_;
  ExpertLayers experts_;
  LatentAttention latent_;
  MultiTokenPrediction mtp_;
  double eps_;
};

}  // namespace prun
