// Cuts layers into the stages of a pipeline so that the most expensive stage costs least. Example: costs 1,
// 4, 4, 4, 4, 3 (embedding, layers, head) in two stages: 1+4+4 and 4+4+3.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "prun/error.hpp"

namespace prun {

// Best division of the first layers into a number of stages: smaller is better.
struct Cut {
  double largest = 0, squares = 0;
  std::int64_t begin = -1;  // first layer of its last stage

  bool better_than(const Cut& other) const {
    return largest != other.largest ? largest < other.largest : squares < other.squares;
  }
};

// Returns the number of layers of each stage. Minimizes the most expensive stage and, among equal divisions,
// takes one of the most even. Throws bad_input if there are fewer layers than stages.
inline std::vector<std::int64_t> cut_evenly(const std::vector<double>& costs, std::int64_t stages) {
  if (static_cast<std::int64_t>(costs.size()) < stages)
    throw_error(ErrorCode::bad_input, "cannot split ", costs.size(),
                " layers, embedding and head counted, into ", stages,
                " stages: these need at least one each; take fewer ranks or chunks, or more layers");
  std::vector<double> sums(costs.size() + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  const auto none_yet = Cut{std::numeric_limits<double>::infinity(), 0, -1};
  // best[k][n] divides the first n layers into k stages.
  std::vector<std::vector<Cut>> best(static_cast<std::size_t>(stages) + 1,
                                     std::vector<Cut>(costs.size() + 1, none_yet));
  best[0][0] = {};
  for (std::size_t k = 1; k <= static_cast<std::size_t>(stages); ++k)
    for (std::size_t n = k; n <= costs.size(); ++n)
      // The last stage grows as `begin` falls: once it exceeds the best cost, stop.
      for (std::size_t begin = k == 1 ? 1 : n; begin-- > k - 1;) {
        const Cut& before = best[k - 1][begin];
        const double cost = sums[n] - sums[begin];
        if (best[k][n].begin >= 0 && cost > best[k][n].largest) break;
        const Cut cut{std::max(before.largest, cost), before.squares + cost * cost,
                      static_cast<std::int64_t>(begin)};
        if (best[k][n].begin < 0 || !best[k][n].better_than(cut)) best[k][n] = cut;
      }
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages));
  auto end = static_cast<std::int64_t>(costs.size());
  for (std::size_t k = layers.size(); k > 0; --k) {
    const std::int64_t begin = best[k][static_cast<std::size_t>(end)].begin;
    layers[k - 1] = end - begin;
    end = begin;
  }
  return layers;
}

}  // namespace prun
