// Llama 3 and Qwen2 shapes: rotary positions, RMSNorm, SwiGLU, grouped-query attention; Qwen2 adds biases to
// queries, keys and values, small ones tie the head.
#pragma once

#include <string>

#include "prun/plugin.hpp"

namespace prun {

class Llama final : public Model {
 public:
  explicit Llama(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  // hugging_face.cpp
  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  void block(const Segment& s) const;
  Id attention(const Segment& s, Id x) const;
  Id mlp(const Segment& s, Id x) const;
  void head(const Segment& s, Id table) const;
  Id norm(const Segment& s, Id x, const std::string& name) const;

  std::int64_t layers_;
  Dim hidden_;
  std::int64_t heads_;
  Dim groups_, head_dim_, ffn_, vocab_;
  std::int64_t positions_;
  bool tied_, qkv_bias_;
  double rope_base_, rope_factor_, rope_low_, rope_high_, rope_original_, eps_;
};

}  // namespace prun
