// The order of a pipeline's calls: asked of a schedule plugin and proved to be one that ends.
#pragma once

#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "prun/schedule.hpp"

namespace prun {

struct PipelineOrder {
  ScheduleShape shape;
  Numbered<std::vector<ScheduleCall>> calls;    // by rank
  Numbered<Numbered<std::int32_t>> stages;      // by rank and chunk
  std::optional<Bubble> theory = std::nullopt;  // what the schedule says of its bubble
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
// `split`: a backward is backward_input and backward_weight. Throws bad_input, a sentence that names
// schedule, rank and call.
PipelineOrder read_schedule(ScheduleInterface& schedule, const ScheduleShape& shape, bool split,
                            const std::string& name);

}  // namespace prun
