// What a rank does with each microbatch: the input of planning. Example: rank 0 of `1f1b` with two stages has
// one chunk, instances 0 to 2, sends to coordinate 1, and the order F0 F1 B0 F2 B1 …
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbered.hpp"
#include "program/step_program.hpp"
#include "prun/schedule.hpp"

namespace prun {

// States a chunk of that work. Without a pipeline, it is all of the chain, forward and back.
struct ChunkWork {
  std::int32_t stage = 0;
  std::int32_t first = 0, last = 0;  // instances of the chain
  // These coordinates have the stage before and the one after; -1: there is none.
  std::int64_t from = -1, to = -1;
  // These instances bound what the rank, and the one that has the stage after, hold of the chain in front of
  // their stage: a rank that has held the segment of a carried value, or one behind it, has the value
  // already.
  std::int32_t held = 0, held_by_next = 0;
};
// States the order in which a rank runs passes while steps overlap: from one first pass of a step to the
// next.
struct PeriodPass {
  std::int32_t call = 0;    // number among the calls of a step
  std::int32_t behind = 0;  // how many steps before it is of
  friend bool operator==(const PeriodPass&, const PeriodPass&) = default;
};
// Says before which of its passes something of a step before has its place; as many as there are passes means
// behind all.
struct PeriodPlace {
  std::int32_t at = 0;
  std::int32_t behind = 1;  // how many steps before it is of
};
struct Period {
  std::vector<PeriodPass> passes;
  // These say where a step is measured, which needs what other stages have; updated; and reported to the
  // host.
  PeriodPlace measured, updated, reported;
  bool at_once = false;      // whether a step is updated right behind its last pass, before others measure
  std::int32_t running = 2;  // most steps that run at a time, on all ranks alike
  // Counts the steps whose passes stand between a first one and the next.
  std::int32_t steps() const;
};

struct Work {
  AxisId axis = no_axis;  // axis of the pipeline; no_axis: there is none
  std::int64_t coordinate = -1;
  bool split = false;         // whether weight gradients are a function of their own
  std::int64_t tied_to = -1;  // coordinate of the rank that holds the other copy of a parameter
  Numbered<ChunkWork> chunks;
  std::vector<ScheduleCall> calls;
  Period period;  // empty if a step ends before the next one begins
  // So many microbatches go through the chain side by side: see order_side_by_side().
  std::int32_t lanes = 1;
  // Says whether the step runs ops of `periodic`: once a period a step does.
  bool periodic = true;

  bool runs(FunctionKind kind) const { return periodic || kind != FunctionKind::periodic; }
  // Says whether others pass an instance between two passes of a microbatch.
  bool interleaves() const { return axis != no_axis || chunks.size() > 1; }
};
Work whole_work(const Program& program, std::int64_t microbatches);
// Returns work in which all microbatches go through an instance before the next one, forward and back: each
// is a stage of its own.
Work vertical_work(const Program& program, std::int64_t microbatches);
// Returns work in which so many microbatches at a time go through an instance before the next one, forward
// and back, then the next so many, each in a lane of its own.
Work side_by_side_work(const Program& program, std::int64_t microbatches, std::int32_t lanes);
// Returns the same work for a program without backward.
Work forward_work(Work work);

}  // namespace prun
