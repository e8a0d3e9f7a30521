// Summarizes, for logs, numbers that ops have counted: all of them where a layer has few, else figures that
// tell whether they are even.
#pragma once

#include <algorithm>
#include <vector>

#include "prun/observer.hpp"

namespace prun {

// Tells how even a layer's numbers are, such as choices of experts: it has their sum, and how far the least
// and the most are from the mean, which counts as 1.
struct TallySummary {
  double sum = 0, least = 0, most = 0;
};

inline std::int64_t columns_of(const TallyInfo& tally) {
  return static_cast<std::int64_t>(tally.numbers.size) / std::max<std::int64_t>(1, tally.layers);
}

inline bool is_listed_whole(const TallyInfo& tally) { return columns_of(tally) <= 4; }

inline TallySummary summary_of(const TallyInfo& tally, std::int64_t layer) {
  const std::int64_t columns = columns_of(tally);
  const double* const begin = tally.numbers.data + layer * columns;
  TallySummary summary{0, begin[0], begin[0]};
  for (std::int64_t i = 0; i < columns; ++i) {
    summary.sum += begin[i];
    summary.least = std::min(summary.least, begin[i]);
    summary.most = std::max(summary.most, begin[i]);
  }
  const double mean = summary.sum / static_cast<double>(columns);
  summary.least = mean > 0 ? summary.least / mean : 1;
  summary.most = mean > 0 ? summary.most / mean : 1;
  return summary;
}

}  // namespace prun
