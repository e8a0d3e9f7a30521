#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> embedding_examples() {
  using namespace example_dims;
  return {
      OpExample("embedding").numbers(0, {b, s}, 0, 9).values(1, {v, h}),
      OpExample("add_position").values(0, {b, s, h}).values(1, {{"positions", 6}, h}),
  };
}

}  // namespace prun
