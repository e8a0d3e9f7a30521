// Walks through a box, row by row along its last dimension.
#pragma once

#include <algorithm>

#include "base/slice.hpp"

namespace prun {

// Calls body(index, count) for elements [first, first + count) of a box in runs along its last dimension:
// where each begins, and how many elements it has. No extent may be 0.
template <class Body>
void each_run(const Extents& box, std::int64_t first, std::int64_t count, Body&& body) {
  Extents index(box.size());
  for (std::size_t d = box.size(); d-- > 0; first /= box[d]) index[d] = first % box[d];
  while (count > 0) {
    const std::int64_t run = std::min(box.back() - index.back(), count);
    body(static_cast<const Extents&>(index), run);
    count -= run;
    index.back() += run;
    for (std::size_t d = box.size() - 1; d > 0 && index[d] == box[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

}  // namespace prun
