#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> router_examples() {
  using namespace example_dims;
  return {
      OpExample("router").values(0, {b, s, h}).values(1, {routes, h}),
  };
}

}  // namespace prun
