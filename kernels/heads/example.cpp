#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> heads_examples() {
  using namespace example_dims;
  return {
      OpExample("split_heads").values(0, {b, s, n, packed, d}).results({1, 2, 3}),
      OpExample("join_heads").values(0, {b, s, n, q, d}).values(1, {b, s, n, d}).values(2, {b, s, n, d}),
  };
}

}  // namespace prun
