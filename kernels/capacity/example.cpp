#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> capacity_examples() {
  using namespace example_dims;
  return {
      OpExample("cap_choices")
          .numbers(0, {b, s, choice}, 0, 7)
          .statistics(1, {b, s, choice})
          .attr("most", 1)
          .attr("experts", 8),
      OpExample("count_dropped")
          .numbers(0, {b, s, choice}, -1, 2)
          .numbers(1, {b, s}, -1, 9)
          .sums(2, {{"layer", 2}, {"all", 1}}),
  };
}

}  // namespace prun
