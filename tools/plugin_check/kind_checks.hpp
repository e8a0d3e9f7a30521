// Lists what `prun plugins check` checks of plugins of one kind, beyond what all kinds share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"
#include "plugin/discovery.hpp"
#include "plugin_check/conformance.hpp"

namespace prun {

// ------------------------------------------------------------------- kind checks

// Other plugins that one is tried with, such as models for a strategy, are looked for in `places`. A check
// that needs one that is not there is left out, and reported. `given` is as for trial_schema(), `recipe` as
// for check_strategy().
std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places, const std::string& given = "",
                                   const std::optional<std::filesystem::path>& recipe = {});

// ------------------------------------------------------------------- trial
// Tries a schedule on all small shapes, for `prun plugins check`.

// Reads, twice, the order of every shape of up to 4 ranks, 8 microbatches and 4 chunks, and of some more
// microbatches, that the schedule does not refuse. Returns how many these are. Throws bad_input for the first
// that is wrong, that differs the second time or has another bubble than the schedule says, or when it
// refuses all of them.
std::string try_schedule(ScheduleInterface& schedule, ScheduleTraits traits, const std::string& name);

}  // namespace prun
