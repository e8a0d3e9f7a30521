// Describes multi-token prediction, as DeepSeek-V3 is trained: modules behind the model, the k-th of which
// predicts for each position the token k + 1 ahead. It joins what the module before (the first: the model)
// has made of the position with the embedding of the token k ahead, and has a block and a norm of its own;
// table and head are the model's. All modules stand in the head's segment, so that a stage of a pipeline has
// them together. Their losses are no part of `loss_sum`, so runs that do not train leave them out.
#pragma once

#include "decoder_block.hpp"

namespace prun {

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

}  // namespace prun
