#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> balance_examples() {
  using namespace example_dims;
  return {
      OpExample("balance")
          .statistics(0, {b, s, routes})
          .numbers(1, {b, s, choice}, 0, 7)
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 1)
          .sums(4, {{"layer", 2}, routes})
          .sums(5, {{"layer", 2}, {"kind", 2}})
          .attr("coefficient", 0.5)
          .attr("z", 0.1)
          .loss(5, 3),
  };
}

}  // namespace prun
