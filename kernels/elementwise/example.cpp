#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> elementwise_examples() {
  using namespace example_dims;
  return {
      OpExample("add").values(0, {b, s, h}).values(1, {b, s, h}),
      OpExample("scale").values(0, {b, s, h}).attr("factor", 0.5),
  };
}

}  // namespace prun
