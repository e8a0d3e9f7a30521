// Simulates a pipeline's calls: step time, idle share, activations in flight; and draws them for `prun plan`.
// Example: `1f1b`, 2 ranks, 2 microbatches, a backward twice a forward: rank 0 runs F0 F1 .. B0 . B1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

// Costs of one stage, in any unit. A full backward takes backward_input + backward_weight.
struct PassCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  // between ranks; computation goes on meanwhile
};

struct CallTime {
  double begin = 0, end = 0;
};

struct PipelineTiming {
  double makespan = 0;
  std::vector<double> idle;               // idle share by rank, of the makespan
  std::vector<double> inner_idle;         // idle share by rank, from first to last call
  std::vector<std::int32_t> peak;         // most microbatches in flight, by rank
  Numbered<std::vector<CallTime>> times;  // by rank and call
};

PipelineTiming time_schedule(const PipelineOrder& order, const PassCosts& costs);

// Returns the idle share of a step, in the units of Bubble; with overlapping steps, of one in the middle.
double bubble_of(const PipelineOrder& order);

// Returns a row for each rank, in at most about `width` columns. A cell is F, B (all, or of the input) or W
// (of the weights) with its microbatch, after its chunk if a rank has several; dots are idle time.
// `first_rank`: name of the first row.
std::string draw(const PipelineOrder& order, const PipelineTiming& timing, int width,
                 std::int32_t first_rank = 0);

// A call waits for this: a pass of the stage before or after.
struct Awaited {
  bool backward = false;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
};
std::optional<Awaited> awaited_by(const PipelineOrder& order, std::int32_t rank, const ScheduleCall& call);

// Returns times by rank and call. A deadlocked rank has fewer times than calls; read_schedule() allows none.
Numbered<std::vector<CallTime>> run_in_virtual_time(const PipelineOrder& order, const PassCosts& costs);

}  // namespace prun
