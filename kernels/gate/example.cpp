#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> gate_examples() {
  using namespace example_dims;
  return {
      OpExample("sigmoid_gate").values(0, {b, s, h}).values(1, {b, s, {"one", 1}}),
  };
}

}  // namespace prun
