// Computes medians of step times: one slow step (a first step, a save) must not move an estimate.
#pragma once

#include <cstddef>
#include <vector>

namespace prun::console {

class StepTimes {
 public:
  // Times that are not positive and finite are left out.
  void add(double seconds);
  bool empty() const { return times_.empty(); }
  // These return the median of the last 101 steps and of all; for an even number it is the mean of the middle
  // two. They must not be called when there are no times.
  double recent_median() const;
  double median() const;

 private:
  std::vector<float> times_;  // takes 4 bytes a step
};

}  // namespace prun::console
