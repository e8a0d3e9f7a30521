// GPT-2: learned positions, pre-norm blocks, gelu, biases; the head tied to the embedding or not.
// It describes one microbatch over whole tensors and knows nothing of parallelism.
#pragma once

#include <string>

#include "prun/plugin.hpp"

namespace prun {

class Gpt final : public Model {
 public:
  explicit Gpt(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // hugging_face.cpp
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  // Of the position table.
  Dim rows(const ModelContext& context) const {
    if (positions_ > 0 && positions_ < context.seq)
      throw_error(ErrorCode::bad_input, "model.seq = ", context.seq,
                  " is more than model.positions = ", positions_);
    return {"positions", positions_ ? positions_ : context.seq};
  }
  Id embedding(const ModelContext& context, ProgramRef program) const;
  void block(const Segment& s) const;
  Id attention(const Segment& s, Id x) const;
  Id mlp(const Segment& s, Id x) const;
  void head(const Segment& s, Id table) const;
  Id norm(const Segment& s, Id x, const std::string& name) const;
  Id dropped(const Segment& s, Id x, int stream) const;
  Init residual_init() const;

  std::int64_t layers_;
  Dim hidden_, heads_, ffn_, vocab_, head_dim_;
  std::int64_t positions_;
  bool tied_;
  double dropout_, eps_;
};

}  // namespace prun
