// Builds T5's attention: scores are not divided by the root of head_dim, and those among a half's own
// positions have a bias by distance, from a table that all layers of the half share.
#pragma once

#include <string>

#include "prun/model.hpp"

namespace prun {

struct RelativeAttention {
  Dim hidden, heads, head_dim, buckets;
  std::int64_t distance;  // from which on all positions are in the last bucket

  explicit RelativeAttention(const Options& options);

  // Returns the table of a half, which is carried to all of its layers.
  Id table(const Segment& s) const;
  // Each returns the projected result; x is the layer's input, normed.
  Id among(const Segment& s, Id x, Id table, bool causal) const;
  Id across(const Segment& s, Id x, Id memory) const;

 private:
  Id projected(const Segment& s, const std::string& name, Id seen) const;
};

}  // namespace prun
