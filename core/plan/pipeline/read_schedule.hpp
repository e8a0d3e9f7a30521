// The order of a pipeline's calls: asked of a schedule plugin and proved to be one that ends.
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
  one,     // in all stages; so steps overlap: one is asked for those of several in a row, and one is cut out
  stages,  // as many as stages come behind it; steps of one microbatch overlap likewise
};

// How steps overlap, where a schedule's trait `delay` lets the next one begin before one ends.
struct Overlap {
  Numbered<Period> periods;  // by rank
  double bubble = 0;         // the idle share of a step that others go before and come behind
  double drain = 0;          // units of time that it takes longer where steps do not follow each other
};

struct PipelineOrder {
  ScheduleShape shape;
  Numbered<std::vector<ScheduleCall>> calls;    // by rank
  Numbered<Numbered<std::int32_t>> stages;      // by rank and chunk
  std::optional<Bubble> theory = std::nullopt;  // what the schedule says of its bubble
  std::optional<Overlap> overlap = std::nullopt;
};

// "schedule 'zb-v' (4 ranks, 8 microbatches, 2 chunks)"
std::string describe(const std::string& name, const ScheduleShape& shape);

// "forward of chunk 0, microbatch 3"
std::string describe(const ScheduleCall& call);

// Why the schedule cannot do this shape, in the plugin's words; empty: it can.
std::string schedule_problem(ScheduleInterface& schedule, const ScheduleShape& shape,
                             const std::string& name);

// Asks the plugin called `name` for the calls of every rank. What comes back places each stage once, has each
// pass of each chunk and microbatch once and after what it needs, and no ranks that wait for each other.
// Throws bad_input, a sentence that names schedule, rank and call.
struct ScheduleTraits {
  bool split = false;  // a backward is backward_input and backward_weight
  Delay delay = Delay::nothing;
};
PipelineOrder read_schedule(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
                            const std::string& name);

}  // namespace prun
