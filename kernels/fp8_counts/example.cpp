#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> fp8_counts_examples() {
  using namespace example_dims;
  return {
      OpExample("count_fp8_codes")
          .values(0, {b, {"seq", 256}, {"width", 256}})
          .scalar(1, 1)
          .sums(2, {{"place", 2}, {"number", 3}}),
      OpExample("peak_fp8_scales")
          .values(0, {b, {"seq", 256}, {"width", 256}})
          .scalar(1, 1)
          .sums(2, {{"place", 2}, {"number", 3}}),
  };
}

}  // namespace prun
