// Writes a candidate as --set takes it, and as people read it.
#pragma once

#include <string>
#include <vector>

#include "train/tune/open_choices.hpp"

namespace prun {

// Returns settings over a recipe without [mesh].
std::vector<std::string> sets_of(const Candidate& candidate, const OpenChoices& open);

// Returns a text such as "dp 4 x tp 2, micro 2, zero stage 1, tensor sequence true".
std::string text_of(const Candidate& candidate, const OpenChoices& open);

}  // namespace prun
