// Draws curves that need no script, with their numbers for the script that lets a reader look closer.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/html.hpp"

namespace prun {

struct CurvePoint {
  double step = 0, time = 0, value = 0;  // `time` counts seconds since the run began
};

struct Curve {
  std::string run;
  std::vector<CurvePoint> points;                       // are few enough to draw
  double first = 0, last = 0, least = 0, greatest = 0;  // those of all points that are finite
  double least_at = 0, greatest_at = 0;                 // are steps
  std::int64_t count = 0;                               // counts all points
  std::int64_t not_finite = 0;                          // counts those that are not finite
};

struct Chart {
  std::string id, title, unit;  // `id` is a word of letters
  std::vector<Curve> curves;    // has one for each run
};

Curve curve_of(std::string run, const std::vector<CurvePoint>& points, std::size_t buckets);

// Adds a figure: heading, drawing, and a table of what the drawing shows.
void add_chart(Html& page, const Chart& chart);

// Returns the JSON that the script reads: [{"id", "title", "unit", "curves": [{"run", "points": [[step, time,
// value], ..]}]}]
std::string charts_json(const std::vector<Chart>& charts);

// Returns 1, 2 or 5 times a power of ten, so that about `count` of them fit into a span.
double tick_distance(double span, int count);

// Writes six significant digits, as everywhere on a page.
std::string number_text(double value);

}  // namespace prun
