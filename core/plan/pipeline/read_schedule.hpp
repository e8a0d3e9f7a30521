// Asks a schedule plugin for the order of calls and proves that it cannot deadlock. Example: an order in
// which rank 0 runs backward of microbatch 0 before rank 1 can have run its forward is refused, naming both
// calls.
#pragma once

#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "plan/work.hpp"
#include "prun/schedule.hpp"

namespace prun {

// ------------------------------------------------------------------- read schedule

// How many updates old the weights are that steps train with.
enum class Delay : std::uint8_t {
  nothing,
  one,     // one in all stages; one step is taken from the order of several in a row
  stages,  // as many as stages follow; steps of one microbatch overlap likewise
};

// How steps overlap, if the next one may begin before one ends (trait `delay`).
struct Overlap {
  Numbered<Period> periods;  // by rank
  double bubble = 0;         // of a step in the middle
  double drain = 0;          // additional time of a step that none follows
};

struct PipelineOrder {
  ScheduleShape shape;
  Numbered<std::vector<ScheduleCall>> calls;    // by rank
  Numbered<Numbered<std::int32_t>> stages;      // by rank and chunk
  std::optional<Bubble> theory = std::nullopt;  // stated by the schedule
  std::optional<Overlap> overlap = std::nullopt;
};

// Returns a text such as "schedule 'zb-v' (4 ranks, 8 microbatches, 2 chunks)"
std::string describe(const std::string& name, const ScheduleShape& shape);

// Returns a text such as "forward of chunk 0, microbatch 3".
std::string describe(const ScheduleCall& call);

// Returns why the schedule refuses this shape; empty if it does not.
std::string schedule_problem(ScheduleInterface& schedule, const ScheduleShape& shape,
                             const std::string& name);

struct ScheduleTraits {
  bool split = false;  // a backward is backward_input and backward_weight
  Delay delay = Delay::nothing;
};
// Returns the calls of every rank. Each stage must be placed once; each pass of each chunk and microbatch
// must occur once, after what it needs; and ranks must not deadlock. Throws bad_input that names schedule,
// rank and call.
PipelineOrder read_schedule(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
                            const std::string& name);

// ------------------------------------------------------------------- overlap
// For schedules whose steps overlap (trait `delay`): takes one step out of the order of several in a row, so
// that the same period of calls can repeat. Example: `2bw` with 4 ranks: rank 0's period begins with its
// first forward of a step and contains the last backwards of the step before.

// Returns how many steps the schedule is asked for.
std::int32_t steps_in_a_row(Delay delay, const ScheduleShape& shape);

// `step`: the order of one step; `row`: of several. Throws bad_input if a step's passes have another order in
// the row than alone, if two steps in the row differ or run into a third, or if a microbatch is in flight
// when that of the same number begins a step later.
Overlap cut_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

// Does the same for steps of one microbatch, as many in flight as stages: each rank runs one forward, and one
// backward of an earlier step. Throws if another step's backward stands there.
Overlap cut_stages_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title);

}  // namespace prun
