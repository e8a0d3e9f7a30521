// Searches a space: it decides which candidates are estimated, and which of them planned.
#pragma once

#include "search/tried_candidates.hpp"

namespace prun {

// Puts the result of the search in `result`, its best proven, or none if nothing can be taken.
void search_space(const TuneSpace& space, const TrialBase& base, const TuneRequest& request,
                  TuneResult& result);

}  // namespace prun
