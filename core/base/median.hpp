// Takes the median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace prun {

// Returns the middle number, of an even count the larger of the two; 0 if there are none.
inline double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace prun
