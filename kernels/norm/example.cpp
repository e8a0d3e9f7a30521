#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> norm_examples() {
  using namespace example_dims;
  return {
      OpExample("layernorm").values(0, {b, s, h}).values(1, {h}).values(2, {h}),
      OpExample("rmsnorm").values(0, {b, s, h}).values(1, {h}),
  };
}

}  // namespace prun
