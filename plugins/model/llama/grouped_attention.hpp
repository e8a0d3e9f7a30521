// Builds attention whose heads come in groups, each of which has one key and one value for all of its
// queries.
#pragma once

#include <optional>

#include "blocks.hpp"
#include "part.hpp"
#include "prun/model.hpp"
#include "residual_stream.hpp"
#include "rope.hpp"

namespace prun {

struct GroupedAttention {
  std::int64_t heads;
  Dim groups, head_dim;
  double query_scalar;  // scores are divided by its root; 0: head_dim
  double softcap;       // bounds scores; 0: they stay as they are
  AttentionDropout dropout;

  explicit GroupedAttention(const Options& options);
  // Throws where options contradict each other.
  void check(const Options& options) const;

  // x is the layer's input, normed; without `rope` positions do not turn. A position sees `window` positions
  // at most, or all before it where that is 0.
  Id build(const SegmentPart& s, const ResidualStream& stream, const std::optional<Rope>& rope, Id x,
           double window) const;

  // Writes what scores are divided by.
  void write_query_scalar(const Family& family, ConfigWriter& config) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;
  // Adds the norms of queries and keys.
  void add_head_norms(const Family& family, const LayerWeights& weights) const;

 private:
  Dim queries() const { return {"queries", heads / groups.extent}; }
  // Counts slots of queries of a group's projection, where each may have a gate behind it.
  std::int64_t query_slots(const Family& family) const {
    return (family.gated_attention ? 2 : 1) * queries().extent;
  }
  // Sets `gates` where queries have some.
  Id normed_heads(const SegmentPart& s, const ResidualStream& stream, Id packed, Id& gates) const;
  // Norms queries and keys, the first two of three.
  void norm_apart(const SegmentPart& s, const ResidualStream& stream, std::vector<Id>& apart) const;
  std::vector<Id> turned_heads(const SegmentPart& s, const std::optional<Rope>& rope, Id packed) const;
};

}  // namespace prun
