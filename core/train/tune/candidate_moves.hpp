// Makes from one candidate those that differ from it in one thing.
#pragma once

#include <vector>

#include "train/tune/candidate_maker.hpp"

namespace prun {

// Another microbatch or batch, a strategy more or less, another value of an option or key, a prime factor of
// ranks from one axis to another; two settings of one strategy, which may go together alone.
std::vector<Candidate> moves_from(const Candidate& candidate, const OpenChoices& open);

}  // namespace prun
