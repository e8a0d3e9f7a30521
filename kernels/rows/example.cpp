#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> rows_examples() {
  using namespace example_dims;
  return {
      OpExample("send_rows")
          .values(0, {b, s, h})
          .numbers(1, {b, s, choice}, -1, 7)
          .attr("parts", 2)
          .attr("rows", 3)
          .attr("experts", 8),
      OpExample("send_choices")
          .numbers(0, {b, s, choice}, -1, 7)
          .statistics(1, {b, s, choice})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8),
      OpExample("return_rows")
          .values(0, {{"experts", 4}, b, {"rows", 2}, h})
          .numbers(1, {b, s, choice}, -1, 7)
          .statistics(2, {{"experts", 4}, b, {"rows", 2}, choice})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8),
      OpExample("count_rows")
          .numbers(0, {b, s, choice}, -1, 7)
          .sums(1, {{"layer", 2}, {"bound", 2}})
          .attr("parts", 4)
          .attr("rows", 2)
          .attr("experts", 8)
          .attr("mean", 1.5),
  };
}

}  // namespace prun
