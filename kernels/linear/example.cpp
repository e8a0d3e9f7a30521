#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> linear_examples() {
  using namespace example_dims;
  return {
      OpExample("linear").values(0, {b, s, h}).values(1, {out, h}).values(2, {out}),
  };
}

}  // namespace prun
