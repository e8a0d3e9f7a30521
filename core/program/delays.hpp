// States how old the weights are that passes train with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace prun {

// States how many updates old the weights of each instance of the chain are.
struct Delays {
  std::vector<std::int32_t> of;
  // If set, a stage is updated as soon as its own gradients are complete, whatever the norm of all is.
  bool at_once = false;

  std::int32_t at(std::size_t instance) const { return of.empty() ? 0 : of.at(instance); }
  std::int32_t longest() const { return of.empty() ? 0 : *std::max_element(of.begin(), of.end()); }
  bool differ() const {
    return std::any_of(of.begin(), of.end(), [&](auto one) { return one != of.front(); });
  }
};

}  // namespace prun
