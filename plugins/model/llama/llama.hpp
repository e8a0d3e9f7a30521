// Builds decoders of Llama's shape: rotary positions, RMSNorm, a gated MLP, grouped-query attention. A table
// (family.hpp) states what distinguishes its families.
#pragma once

#include <string>
#include <vector>

#include "decoder_block.hpp"
#include "family.hpp"
#include "mtp.hpp"
#include "prun/plugin.hpp"

namespace prun {

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
  // These are in hugging_face.cpp.
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
