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

}  // namespace prun
