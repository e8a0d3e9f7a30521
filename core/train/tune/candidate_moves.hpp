// Makes from one candidate those that differ from it in one thing.
#pragma once

#include <vector>

#include "train/tune/candidate_maker.hpp"

namespace prun {

// Returns moves: another microbatch or batch, a strategy more or less, another value of an option or key, a
// prime factor of ranks from one axis to another; two settings of one strategy, which may only work together.
std::vector<Candidate> moves_from(const Candidate& candidate, const OpenChoices& open);

}  // namespace prun
