// Accounts for a run's time, as far as its log holds it.
#pragma once

#include <string>
#include <vector>

#include "runs/log.hpp"

namespace prun {

struct TimeShare {
  std::string name;
  double seconds = 0;
  std::string meaning;
};

struct TimeAccount {
  double wall = 0;                // goes from the first line to the last
  std::vector<TimeShare> shares;  // have the whole as their sum
  std::int64_t measured = 0;      // counts steps in which exposed communication was measured
};

TimeAccount account_of(const RunLog& log);

// Returns the quantile of the steps that count; `share` is from 0 to 1. It is 0 where there are none.
double value_at(const RunLog& log, double share, double LoggedStep::*value);
inline double step_seconds_at(const RunLog& log, double share) {
  return value_at(log, share, &LoggedStep::seconds);
}

}  // namespace prun
