// Describes the residual stream, which every block reads and adds to: its width, how tokens enter it, and the
// norms that a family has on it.
#pragma once

#include <string>

#include "family.hpp"
#include "layer_weights.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "special_tokens.hpp"

namespace prun {

struct ResidualStream {
  Family family;
  Dim hidden;
  double eps;
  double embedding_scale, residual_scale;
  SpecialTokens tokens;

  ResidualStream(const Family& of, const Options& options);

  Id embedded(const SegmentPart& s, Id numbers, Id table) const;
  // Returns a sub-layer's input: x, or its norm where the family has one there.
  Id input_of(const SegmentPart& s, Id x, const char* norm_name) const;
  // Adds a sub-layer's output, or its norm where the family has one there, times residual_scale.
  Id added(const SegmentPart& s, Id x, const char* norm_name, Id output) const;

  Id norm(const SegmentPart& s, Id x, const std::string& name) const;
  // Norms the last `dims` dimensions of x as one row.
  Id norm(const SegmentPart& s, Id x, Id gain, int dims) const;
  Init gains() const { return family.gain_from_one ? zeros() : ones(); }

  // Writes what embeddings and outputs of sub-layers are multiplied by.
  void write_scales(ConfigWriter& config) const;
  // Adds the norms around both sub-layers of a block.
  void add_norms(const LayerWeights& weights) const;

 private:
  static Id scaled(const SegmentPart& s, Id x, double factor);
  bool normed(NormPlace there) const { return family.norms == there || family.norms == NormPlace::around; }
};

}  // namespace prun
