// ModernBERT sees both directions: some layers all positions, the others those near a position, with bases of
// rotary positions of their own. It has norms without biases in front of each sublayer, but for the first
// one, which the embedding's norm serves, a gated gelu, and the head of BERT. It predicts masked tokens,
// which the data chooses. It describes one microbatch over whole tensors and knows nothing of parallelism.
#pragma once

#include <string>
#include <vector>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "special_tokens.hpp"

namespace prun {

class ModernBert final : public Model {
 public:
  explicit ModernBert(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // Is in hugging_face.cpp.
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  // Names layers that are alike and follow each other: a segment of the program.
  struct Run {
    std::string segment;
    std::int64_t first, count;
    bool full, normed;  // sees all positions; has a norm in front of attention
  };
  std::vector<Run> runs() const;
  bool is_full(std::int64_t layer) const;

  Id embedding(ProgramRef program) const;
  void block(const Segment& s, const Run& run) const;
  Id attention(const Segment& s, const Run& run, Id x) const;
  Id mlp(const Segment& s, Id x) const;
  void head(const Segment& s, Id table) const;
  Id norm(const Segment& s, Id x, const std::string& name, const Dim& width) const;

  std::int64_t layers_;
  Widths widths_;
  std::int64_t positions_, window_, full_every_;
  std::vector<std::int64_t> full_;  // layers that see all besides
  double base_, window_base_;
  Init inner_, residual_;  // of matrices, and of those into the residual stream
  Dropout dropout_;
  AttentionDropout attention_dropout_;
  double eps_;
  bool head_bias_;
  SpecialTokens tokens_;
};

}  // namespace prun
