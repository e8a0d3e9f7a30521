// Runs a pipeline's calls in virtual time: it finds how long a step takes, which ranks are idle and how much
// is alive; and draws the calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

// States the costs of one stage, in any unit. A whole backward takes backward_input + backward_weight.
struct PassCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  // time from one rank to another; computing goes on meanwhile
};

struct CallTime {
  double begin = 0, end = 0;
};

struct PipelineTiming {
  double makespan = 0;
  std::vector<double> idle;               // idle share by rank, over the makespan
  std::vector<double> inner_idle;         // idle share by rank, between its first call and its last
  std::vector<std::int32_t> peak;         // most forwards whose backward has not ended, by rank
  Numbered<std::vector<CallTime>> times;  // times by rank and call
};

PipelineTiming time_schedule(const PipelineOrder& order, const PassCosts& costs);

// Returns the idle share of a step, in the units of Bubble; where steps overlap, that of one between two
// others.
double bubble_of(const PipelineOrder& order);

// Draws a row for each rank, in `width` columns or somewhat less. A cell is F, B (whole, or of the input) or
// W (of the weights) with its microbatch, and before it its chunk where a rank has several; idle time is
// dots. `first_rank` is the name of the first row.
std::string draw(const PipelineOrder& order, const PipelineTiming& timing, int width,
                 std::int32_t first_rank = 0);

// Says what a call waits for: a pass of the stage before or after it.
struct Awaited {
  bool backward = false;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
};
std::optional<Awaited> awaited_by(const PipelineOrder& order, std::int32_t rank, const ScheduleCall& call);

// Returns times by rank and call. A rank that waits forever has fewer times than calls; see read_schedule(),
// which allows none.
Numbered<std::vector<CallTime>> run_in_virtual_time(const PipelineOrder& order, const PassCosts& costs);

}  // namespace prun
