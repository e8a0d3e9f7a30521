#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> lm_head_examples() {
  using namespace example_dims;
  return {
      OpExample("lm_head")
          .values(0, {b, s, h})
          .values(1, {v, h})
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 0.25)
          .scalar(4, 0)
          .values(7, {v})
          .loss(4, 3),
      OpExample("lm_head_regularized")
          .values(0, {b, s, h})
          .values(1, {v, h})
          .numbers(2, {b, s}, -1, 9)
          .scalar(3, 0.25)
          .scalar(4, 0)
          .attr("z", 0.02)
          .attr("smoothing", 0.125)
          .loss(4, 3),
  };
}

}  // namespace prun
