#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> activation_examples() {
  using namespace example_dims;
  return {
      OpExample("gelu").values(0, {b, s, h}, -3, 3),
      OpExample("gelu_erf").values(0, {b, s, h}, -3, 3),
      OpExample("swiglu").values(0, {b, s, {"gate", 2}, h}, -2, 2),
  };
}

}  // namespace prun
