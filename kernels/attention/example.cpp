#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> attention_examples() {
  using namespace example_dims;
  return {
      OpExample("attention")
          .values(0, {b, s, n, q, d})
          .values(1, {b, s, n, d})
          .values(2, {b, s, n, d})
          .values(6, {n, q})
          .attr("causal", 1),
      OpExample("attention_biased")
          .values(0, {b, s, n, q, d})
          .values(1, {b, s, n, d})
          .values(2, {b, s, n, d})
          .values(3, {n, {"buckets", 6}})
          .attr("causal", 1)
          .attr("distance", 8),
      OpExample("attention_packed").values(0, {b, s, n, packed, d}).attr("causal", 1),
  };
}

}  // namespace prun
