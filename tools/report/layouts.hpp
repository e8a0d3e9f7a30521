// Draws the layouts that a search planned: the time of a step against memory, and the frontier.
#pragma once

#include "report/page.hpp"
#include "search/tune.hpp"

namespace prun {

// Limits the planned layouts that are drawn: the best ones.
inline constexpr std::size_t most_layouts = 200;

// Returns layouts by growing memory: no other one is quicker in as much or less.
std::vector<const TunedCandidate*> frontier_of(const std::vector<TunedCandidate>& layouts);

void add_layouts(Html& page, const TuneResult& result);

}  // namespace prun
