#include <vector>

#include "rules/example_dims.hpp"

namespace prun {

std::vector<OpExample> short_conv_examples() {
  using namespace example_dims;
  const Dim channels{"channels", 16};
  const Dim one{"one", 1};
  const Dim taps{"taps", 4};
  return {
      OpExample("short_conv").values(0, {b, s, n, channels}).values(1, {n, channels, one, taps}),
  };
}

}  // namespace prun
