// Computes what reports and pages show of a plan: its memory by purpose and over a step, the traffic between
// ranks, and the timeline of a simulated step.
#pragma once

#include <string>
#include <vector>

#include "estimate/forecast.hpp"
#include "plan/plan.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// ------------------------------------------------------------------- purposes
// Names what memory is for, in the words of reports.

struct PurposeBytes {
  std::string name;
  bool stays = false;                  // says that it has an allocation, which may lie in several ranges
  std::vector<std::int64_t> by_range;  // by range of the layout

  std::int64_t all() const;
};

// Returns bytes by region, in their order. Tensors that ranks keep in parts are stored with the optimizer
// state, and are listed separately: parts of parameters and of gradients.
std::vector<PurposeBytes> bytes_by_purpose(const Program& program, const Plan& plan);

// ------------------------------------------------------------------- memory use
// Computes how much of a plan's arena is in use when, over the calls of a step, and what most of it consists
// of.

// Holds what is in use while one call runs that computes.
struct MemoryMoment {
  std::string call;          // such as "backward block.3 mb 1"
  std::int64_t saved = 0;    // is what forward keeps for backward and hands on, of microbatches alive
  std::int64_t scratch = 0;  // that of this call
};

struct PeakTensor {
  std::string name, region;
  std::int64_t bytes = 0;
};

struct MemoryUse {
  std::int64_t always = 0;  // is there in every moment: parameters, gradients, state, buffers used in turn
  std::vector<MemoryMoment> moments;
  std::size_t peak = 0;             // the moment with most in use
  std::vector<PeakTensor> tensors;  // those that the call at the peak works with, the largest first

  std::int64_t at(std::size_t moment) const {
    return always + moments[moment].saved + moments[moment].scratch;
  }
};

MemoryUse memory_use(const Assembly& assembly, std::int64_t rank);

// ------------------------------------------------------------------- traffic matrix
// Counts how much ranks send to which others in a step.

// Is one of a rank's queues that communicate.
struct Link {
  std::int64_t rank = 0;
  std::string queue, axis, comm;
  std::vector<int> members;
  double bytes = 0;  // counts those that the rank sends, as its comm plugin does
};

struct TrafficMatrix {
  std::int64_t ranks = 0;  // counts ranks of the mesh; the first `bytes.size()` have a row
  // Bytes are by sender and receiver. Those for a group are shared out evenly among its other members: which
  // of them a link leads to is up to the comm plugin.
  std::vector<std::vector<double>> bytes;
  std::vector<Link> links;  // those of the ranks with a row
};

TrafficMatrix traffic_matrix(const Assembly& assembly, PluginHost& plugins, std::int64_t most_rows);

// ------------------------------------------------------------------- timeline
// Returns what runs when in a step, as bars to draw: from the simulated step or, without a cost table,
// from the pipeline's schedule with every pass taking one unit.

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
