// Lists what a rank does with each microbatch: the input of planning. Example: rank 0 of `1f1b` with two
// stages has one chunk, instances 0 to 2, sends to coordinate 1, and the order F0 F1 B0 F2 B1 …
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbered.hpp"
#include "program/step_program.hpp"
#include "prun/schedule.hpp"

namespace prun {

// Without a pipeline, one chunk has all instances.
struct ChunkWork {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // instances
  // Coordinates of the stages before and after; -1: none.
  std::int64_t from = -1, to = -1;
  // How far into the instances the rank, and the rank of the next stage, have been before this stage: a rank
  // that held the segment of a carried value, or a later one, has the value already.
  std::int32_t held = 0, held_by_next = 0;
};
// The order of passes while steps overlap: from the first pass of a step to that of the next.
struct PeriodPass {
  std::int32_t call = 0;    // among the calls of a step
  std::int32_t behind = 0;  // how many steps earlier it belongs to
  friend bool operator==(const PeriodPass&, const PeriodPass&) = default;
};
// The pass before which something of an earlier step takes place; the number of passes: after all.
struct PeriodPlace {
  std::int32_t at = 0;
  std::int32_t behind = 1;  // how many steps earlier it belongs to
};
struct Period {
  std::vector<PeriodPass> passes;
  // Where a step is measured (which needs other stages' sums), updated, and reported to the host.
  PeriodPlace measured, updated, reported;
  bool at_once = false;      // a step is updated right after its last pass, before others measure
  std::int32_t running = 2;  // most steps in flight, the same on all ranks
  // Returns the number of steps with passes in a period.
  std::int32_t steps() const;
};

struct Work {
  AxisId axis = no_axis;  // of the pipeline; no_axis: none
  std::int64_t coordinate = -1;
  bool split = false;         // weight gradients are a separate function
  std::int64_t tied_to = -1;  // coordinate with the other copy of a tied parameter
  Numbered<ChunkWork> chunks;
  std::vector<ScheduleCall> calls;
  Period period;  // empty unless steps overlap
  // Microbatches that go through the layers side by side: see order_side_by_side().
  std::int32_t lanes = 1;
  // The step runs ops of `periodic`.
  bool periodic = true;

  bool runs(FunctionKind kind) const { return periodic || kind != FunctionKind::periodic; }
  // Returns true if other passes come between two passes of a microbatch through an instance.
  bool interleaves() const { return axis != no_axis || chunks.size() > 1; }
};
Work whole_work(const Program& program, std::int64_t microbatches);
// All microbatches pass an instance before the next one, forward and back: each instance is a stage.
Work vertical_work(const Program& program, std::int64_t microbatches);
// So many microbatches pass an instance together before the next one, forward and back, each in a lane; then
// the next so many.
Work side_by_side_work(const Program& program, std::int64_t microbatches, std::int32_t lanes);
// Returns the same work without backward.
Work forward_work(Work work);

}  // namespace prun
