#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> bound_examples() {
  using namespace example_dims;
  return {
      OpExample("halt_beyond").sums(0, {{"layer", 2}, {"bound", 2}}).scalar(1, 0),
  };
}

}  // namespace prun
