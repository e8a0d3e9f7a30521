// Lists what a rank does with each microbatch: the input of planning. Example: rank 0 of `1f1b` with two
// stages has one chunk, instances 0 to 2, sends to coordinate 1, and the order F0 F1 B0 F2 B1 …
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbered.hpp"
#include "plan/plan.hpp"
#include "program/step_program.hpp"
#include "prun/schedule.hpp"

namespace prun {

// ------------------------------------------------------------------- work

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
  // Microbatches that go through the layers side by side: see order_interleaved().
  std::int32_t interleave = 1;
  // The step runs ops of `periodic`.
  bool periodic = true;

  bool runs(FunctionKind kind) const { return periodic || kind != FunctionKind::periodic; }
  // Returns true if other passes come between two passes of a microbatch through an instance.
  bool interleaves() const { return axis != no_axis || chunks.size() > 1; }
};
Work whole_work(const Program& program, std::int64_t microbatches);
// All microbatches pass an instance before the next one, forward and back: each instance is a stage.
Work vertical_work(const Program& program, std::int64_t microbatches);
// So many microbatches pass an instance together before the next one, forward and back; then
// the next so many.
Work interleaved_work(const Program& program, std::int64_t microbatches, std::int32_t interleave);
// Returns the same work without backward.
Work forward_work(Work work);

// ------------------------------------------------------------------- instances
// Lists the layers that a rank holds, in the order in which a microbatch passes them. Example: stage 1 of 2
// of a GPT with four layers holds a receive stub (for layer 1), layers 2 and 3, and the head.

// Returns all layers of the model.
Numbered<Instance> chain_of(const Program& program);

// Fills plan.instances and plan.chunks. Returns the first instance of each segment; -1: this rank has none.
std::vector<std::int32_t> make_instances(const Program& program, const Work& work, Plan& plan);

// Returns those instances of the chain that a rank holds, without receive stubs.
std::vector<std::int32_t> held_instances(const Plan& plan);

// ------------------------------------------------------------------- carried spans
// Finds the layers over which each carried value is needed: from its segment to its last reader. Example: an
// encoder output of layer 3, read by layers 5 to 9, crosses the boundary before layers 4 to 9.

struct CarriedSpan {
  CarriedValue of;
  std::int32_t from = 0, last = 0;  // instances of the chain

  // Returns true if the value crosses the boundary before that layer.
  bool crosses(std::int32_t instance) const { return from < instance && instance <= last; }
  // Returns true if layers [begin, end) use the value or pass it on.
  bool meets(std::int32_t begin, std::int32_t end) const { return from < end && begin <= last; }

  // Returns true if the value arrives with a chunk's input: if the rank does not have it yet. Its gradient
  // returns over every boundary between ranks, so that contributions are added in the order of backward.
  bool arrives(const Work& work, const ChunkWork& chunk) const {
    return gradient_leaves(work, chunk) && chunk.held <= from;
  }
  bool leaves(const Work& work, const ChunkWork& chunk) const {
    return gradient_arrives(work, chunk) && chunk.held_by_next <= from;
  }
  bool gradient_leaves(const Work& work, const ChunkWork& chunk) const {
    return crosses(chunk.first) && chunk.from >= 0 && chunk.from != work.coordinate;
  }
  bool gradient_arrives(const Work& work, const ChunkWork& chunk) const {
    return crosses(chunk.last) && chunk.to >= 0 && chunk.to != work.coordinate;
  }
};

std::vector<CarriedSpan> carried_spans(const Program& program);

// ------------------------------------------------------------------- nominal time
// Estimates the time of a step without measurements, to order calls. Example: with batch.interleave, whether
// microbatch 1's attention or microbatch 0's MLP runs first depends on these times.

// Returns the same on all ranks, which a measured time would not be. Nothing reported to users depends on it.
double nominal_seconds(const Program& program, const PlannedStep& step);

// ------------------------------------------------------------------- older parameters
// Functions that read older versions of parameters (schedules `2bw` and `pipedream`). Example: on stage 0 of
// 3 `pipedream` runs forward with `weight.before2`, two updates old.

bool reads_before(const Program& program, const PlannedFunction& function);

// Makes a function read parameters that are so many updates old; 0: current ones.
void read_with_age(const Program& program, const Plan& plan, std::int64_t updates, PlannedFunction& function);

}  // namespace prun
