// Returns what runs when in a step, as bars to draw: from the simulated step or, where there are no prices,
// from the pipeline's schedule with every pass taking one unit.
#pragma once

#include <string>
#include <vector>

#include "estimate/forecast.hpp"

namespace prun {

struct TimelineBar {
  enum class Kind : std::uint8_t { forward, backward, weight, update, exchange };
  double begin = 0, end = 0;
  Kind kind = Kind::forward;
  std::string name;
};

struct TimelineRow {
  std::string label;
  std::vector<TimelineBar> bars;  // are ordered by time
  double idle = 0;                // the share of the whole, from 0 to 1
};

struct Timeline {
  std::vector<TimelineRow> rows;
  double end = 0;
  std::string unit;  // is "ms" or "passes"
  std::string said;  // says what it shows, and what it leaves out
};

// It has no rows where there is neither, and at most `most_rows` rows and so many bars.
Timeline timeline_of(const Assembly& assembly, const Forecast& forecast, std::size_t most_rows,
                     std::size_t most_bars);

}  // namespace prun
