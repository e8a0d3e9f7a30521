// GPT-2 has learned positions, pre-norm blocks, gelu, biases, and a head tied to the embedding or not. It
// describes one microbatch over whole tensors and knows nothing of parallelism.
#pragma once

#include <string>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "special_tokens.hpp"

namespace prun {

class Gpt final : public Model {
 public:
  explicit Gpt(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  Id embedding(const ModelContext& context, ProgramRef program) const;
  void block(const Segment& s) const;
  void head(const Segment& s, Id table) const;
  Id norm(const Segment& s, Id x, const std::string& name) const;
  Init residual_init() const;

  std::int64_t layers_;
  Widths widths_;
  PositionTable positions_;
  bool tied_;
  double deviation_;  // that of initial weights
  Dropout dropout_;
  AttentionDropout attention_dropout_;
  LayerNorm norm_;
  SpecialTokens tokens_;
};

}  // namespace prun
