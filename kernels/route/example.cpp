#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> route_examples() {
  using namespace example_dims;
  return {
      OpExample("route")
          .statistics(0, {b, s, routes}, -3, 3)
          .statistics(1, {routes})
          .attr("choices", 2)
          .attr("groups", 4)
          .attr("chosen_groups", 2)
          .results({3}),
  };
}

}  // namespace prun
