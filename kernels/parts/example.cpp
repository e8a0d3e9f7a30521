#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> parts_examples() {
  using namespace example_dims;
  return {
      OpExample("add_parts")
          .values(0, {b, s, n, packed, d})
          .values(1, {b, s, n, {"packed_0", 2}, d})
          .values(3, {b, s, n, {"packed_3", 1}, d})
          .attr("dim", 3)
          .attr("end_b", 2)
          .attr("begin_d", 3)
          .attr("end_d", 4),
      OpExample("pair").values(0, {b, s, h}).values(1, {b, s, h}),
  };
}

}  // namespace prun
