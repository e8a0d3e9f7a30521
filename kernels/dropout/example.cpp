#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> dropout_examples() {
  using namespace example_dims;
  return {
      OpExample("dropout")
          .values(0, {b, s, h})
          .numbers(1, {b}, 0, 99, DType::i64)
          .scalar(2, 12345)
          .attr("p", 0.5),
  };
}

}  // namespace prun
