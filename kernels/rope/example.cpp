#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> rope_examples() {
  using namespace example_dims;
  return {
      OpExample("rope").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
  };
}

}  // namespace prun
