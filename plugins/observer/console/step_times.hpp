// Medians of step times: one slow step (a first step, a save) must not move an estimate.
#pragma once

#include <cstddef>
#include <vector>

namespace prun::console {

class StepTimes {
 public:
  // Times that are not positive and finite are left out.
  void add(double seconds);
  bool empty() const { return times_.empty(); }
  // Of the last 101 steps and of all. Of an even number the mean of the middle two. Not to be asked when
  // empty.
  double recent_median() const;
  double median() const;

 private:
  std::vector<float> times_;  // 4 bytes a step
};

}  // namespace prun::console
