#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> delta_heads_examples() {
  using namespace example_dims;
  const Dim mixed{"mixed", 24};
  const Dim channels{"channels", 16};
  const Dim more{"heads", 4};
  const Dim both{"both", 4};
  return {
      OpExample("split_mixed")
          .values(0, {b, s, n, mixed})
          .attr("channels", 16)
          .attr("values", 2)
          .results({1, 2}),
      OpExample("delta_heads")
          .values(0, {b, s, n, channels})
          .attr("key_dim", 4)
          .attr("values", 2)
          .results({1, 2, 3}),
      OpExample("delta_gates").values(0, {b, s, n, both}).values(1, {more}).values(2, {more}).results({3, 4}),
  };
}

}  // namespace prun
