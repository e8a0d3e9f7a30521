#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> output_gate_examples() {
  using namespace example_dims;
  return {
      OpExample("output_gate").values(0, {b, s, n, d}).values(1, {b, s, n, d}),
      OpExample("split_gate").values(0, {b, s, n, packed, d}).results({1, 2}),
  };
}

}  // namespace prun
