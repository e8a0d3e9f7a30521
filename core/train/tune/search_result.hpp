// Collects the result of a search: the best, proven, and the results of the others.
#pragma once

#include "train/tune/tried_candidates.hpp"

namespace prun {

void conclude_search(TriedCandidates& tried, const TuneSpace& space, const TuneRequest& request,
                     TuneResult& result);

}  // namespace prun
