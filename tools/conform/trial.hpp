// Tries a schedule on all small shapes, for `prun plugins check`.
#pragma once

#include <string>

#include "plan/pipeline/read_schedule.hpp"

namespace prun {

// Reads, twice, the order of every shape of up to 4 ranks, 8 microbatches and 4 chunks, and of some more
// microbatches, that the schedule does not refuse. Returns how many these are. Throws bad_input for the first
// that is wrong, that differs the second time or has another bubble than the schedule says, or when it
// refuses all of them.
std::string try_schedule(ScheduleInterface& schedule, ScheduleTraits traits, const std::string& name);

}  // namespace prun
