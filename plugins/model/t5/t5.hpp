// T5 1.1 has an encoder of both directions and a decoder that looks at the encoder's result, norms in front
// of each sublayer, gated gelu, no biases, a table of relative positions for each half, which all of its
// layers share, and a head of its own. A sample's first `inputs` tokens are the encoder's, the others the
// decoder's, whose targets count. It describes one microbatch over whole tensors and knows nothing of
// parallelism.
#pragma once

#include <string>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "relative_attention.hpp"
#include "special_tokens.hpp"

namespace prun {

class T5 final : public Model {
 public:
  explicit T5(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // Is in hugging_face.cpp.
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  // Holds what all layers of a half look at.
  struct Shared {
    Id table = none, memory = none;
  };
  // These return the encoder's and the decoder's part of tokens or targets.
  Id encoders(const Segment& s, Id numbers) const;
  Id decoders(const Segment& s, Id numbers) const;

  void layer(const Segment& s, const Shared& shared) const;
  Id mlp(const Segment& s, Id x) const;
  Id norm(const Segment& s, Id x, const std::string& name) const;
  Id added(const Segment& s, Id x, Id y, int stream) const;

  std::int64_t layers_, decoder_layers_, said_inputs_, inputs_ = 1, seq_ = 1;
  Dim hidden_, ffn_, vocab_;
  RelativeAttention attention_;
  Dropout dropout_;
  double eps_;
  SpecialTokens tokens_;
  std::int64_t start_;
};

}  // namespace prun
