#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> delta_rule_examples() {
  using namespace example_dims;
  const Dim more{"heads", 4};
  const Dim key{"key_dim", 4};
  const Dim value{"value_dim", 4};
  return {
      OpExample("delta_rule")
          .values(0, {b, s, n, key})
          .values(1, {b, s, n, key}, -0.5, 0.5)
          .values(2, {b, s, more, value})
          .statistics(3, {b, s, more}, -1, -0.125)
          .statistics(4, {b, s, more}, 0.25, 0.75)
          .attr("chunk", 2),
  };
}

}  // namespace prun
