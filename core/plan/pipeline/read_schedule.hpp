// Reads the order of a pipeline's calls from a schedule plugin and proves that it ends.
#pragma once

#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "plan/work.hpp"
#include "prun/schedule.hpp"

namespace prun {

// States how many updates old the weights are that steps train with.
enum class Delay : std::uint8_t {
  nothing,
  one,     // one in all stages; steps overlap: one is cut out of the order of several in a row
  stages,  // as many updates as stages come behind; steps of one microbatch overlap likewise
};

// Says how steps overlap, if a schedule's trait `delay` lets the next one begin before one ends.
struct Overlap {
  Numbered<Period> periods;  // periods by rank
  double bubble = 0;         // idle share of a step between two others
  double drain = 0;          // additional units of time of a step that no other follows
};

struct PipelineOrder {
  ScheduleShape shape;
  Numbered<std::vector<ScheduleCall>> calls;    // calls by rank
  Numbered<Numbered<std::int32_t>> stages;      // stages by rank and chunk
  std::optional<Bubble> theory = std::nullopt;  // bubble that the schedule states
  std::optional<Overlap> overlap = std::nullopt;
};

// Returns a text such as "schedule 'zb-v' (4 ranks, 8 microbatches, 2 chunks)".
std::string describe(const std::string& name, const ScheduleShape& shape);

// Returns a text such as "forward of chunk 0, microbatch 3".
std::string describe(const ScheduleCall& call);

// Says why the schedule cannot do this shape, in the plugin's words; the text is empty if it can.
std::string schedule_problem(ScheduleInterface& schedule, const ScheduleShape& shape,
                             const std::string& name);

// Asks the plugin called `name` for the calls of every rank. The answer must place each stage once, have each
// pass of each chunk and microbatch once and after what it needs, and let no ranks wait for each other.
// Throws bad_input, a sentence that names schedule, rank and call.
struct ScheduleTraits {
  bool split = false;  // whether a backward is backward_input and backward_weight
  Delay delay = Delay::nothing;
};
PipelineOrder read_schedule(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
                            const std::string& name);

}  // namespace prun
