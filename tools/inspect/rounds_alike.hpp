// Says how one rank rounds what ranks send in codes, or that it cannot do so as they do.
#pragma once

#include "train/assemble/assembly.hpp"

namespace prun {

// Returns the number of sequences that the one rank takes at once; it throws where no number would have it
// round what the ranks round.
std::int64_t micro_of_one_rank(const Assembly& assembly);

}  // namespace prun
