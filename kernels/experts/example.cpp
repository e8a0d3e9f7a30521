#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> experts_examples() {
  using namespace example_dims;
  return {
      OpExample("experts")
          .values(0, {b, s, h})
          .numbers(1, {b, s, choice}, 0, 7)
          .statistics(2, {b, s, choice})
          .values(3, {experts, gate, f, h})
          .values(4, {experts, h, f})
          .attr("experts", 8),
      OpExample("biased_experts")
          .values(0, {b, s, h})
          .numbers(1, {b, s, choice}, 0, 7)
          .statistics(2, {b, s, choice})
          .values(3, {experts, gate, f, h})
          .values(4, {experts, h, f})
          .values(5, {experts, gate, f})
          .attr("experts", 8)
          .attr("limit", 1)
          .attr("alpha", 1.702),
      OpExample("expert_biases")
          .numbers(0, {b, s, choice}, 0, 7)
          .statistics(1, {b, s, choice})
          .values(2, {experts, h}),
  };
}

}  // namespace prun
