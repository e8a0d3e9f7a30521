#include "placement/dealt_loads.hpp"

#include <algorithm>

namespace prun {

std::size_t deal(std::vector<double>& loads, std::int64_t layers, double cost) {
  std::vector<double> best;
  std::size_t first = 0;
  for (std::size_t begin = 0; begin < loads.size(); ++begin) {
    std::vector<double> then = loads;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      then[(begin + static_cast<std::size_t>(layer)) % loads.size()] += cost;
    if (best.empty() ||
        *std::max_element(then.begin(), then.end()) < *std::max_element(best.begin(), best.end()))
      best = std::move(then), first = begin;
  }
  loads = std::move(best);
  return first;
}

}  // namespace prun
