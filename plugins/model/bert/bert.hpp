// BERT: both directions, learned positions and token types, a norm behind each sublayer, a head with a
// projection of its own in front of the token table and a bias for each word. It predicts masked tokens:
// which ones, says the data. It describes one microbatch over whole tensors and knows nothing of parallelism.
#pragma once

#include <string>

#include "prun/plugin.hpp"

namespace prun {

class Bert final : public Model {
 public:
  explicit Bert(const Options& options);
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
  Id activated(const Segment& s, Id x) const;
  Id norm(const Segment& s, Id x, const std::string& name, const Dim& width) const;
  Id dropped(const Segment& s, Id x, int stream) const;

  std::int64_t layers_;
  Dim hidden_, heads_, ffn_, vocab_, head_dim_;
  std::int64_t positions_, types_, separator_;
  std::string activation_;
  double dropout_, eps_;
};

}  // namespace prun
