// Finds the median by selection, not sorting.
#include "step_times.hpp"

#include <algorithm>
#include <cmath>

#include "prun/error.hpp"

namespace prun::console {

namespace {

constexpr std::size_t recent_steps = 101;

double median_of(std::vector<float> times) {
  PRUN_CHECK(!times.empty(), "a median of no step times");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  if (times.size() % 2 == 1) return *middle;
  return (static_cast<double>(*std::max_element(times.begin(), middle)) + *middle) / 2;
}

}  // namespace

void StepTimes::add(double seconds) {
  if (std::isfinite(seconds) && seconds > 0) times_.push_back(static_cast<float>(seconds));
}

double StepTimes::recent_median() const {
  const std::size_t count = std::min(recent_steps, times_.size());
  return median_of({times_.end() - static_cast<std::ptrdiff_t>(count), times_.end()});
}

double StepTimes::median() const { return median_of(times_); }

}  // namespace prun::console
