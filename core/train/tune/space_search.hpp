// Searches a space: it decides which candidates are estimated, and which of them planned.
#pragma once

#include "train/tune/tried_candidates.hpp"

namespace prun {

// Leaves in the result what the search came to, its best proven; none where nothing can be taken.
void search_space(const TuneSpace& space, const TrialBase& base, const TuneRequest& request,
                  TuneResult& result);

}  // namespace prun
