// BERT has both directions, learned positions and token types, a norm behind each sublayer, and a head with a
// projection of its own in front of the token table and a bias for each word. It predicts masked tokens,
// which the data chooses. It describes one microbatch over whole tensors and knows nothing of parallelism.
#pragma once

#include <string>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "special_tokens.hpp"

namespace prun {

class Bert final : public Model {
 public:
  explicit Bert(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // Is in hugging_face.cpp.
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  Id embedding(const ModelContext& context, ProgramRef program) const;
  void block(const Segment& s) const;
  void head(const Segment& s, Id table) const;
  const char* activation() const { return activation_ == "gelu" ? "gelu_erf" : "gelu"; }

  std::int64_t layers_;
  Widths widths_;
  PositionTable positions_;
  std::int64_t types_, separator_;
  std::string activation_;
  double deviation_;  // that of initial weights
  Dropout dropout_;
  AttentionDropout attention_dropout_;
  LayerNorm norm_;
  SpecialTokens tokens_;
};

}  // namespace prun
