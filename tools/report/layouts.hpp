// Draws the layouts that a search planned: the time of a step against memory, and the frontier.
#pragma once

#include "report/html.hpp"
#include "train/tune/tune.hpp"

namespace prun {

// So many of those that were planned are drawn, the best.
inline constexpr std::size_t most_layouts = 200;

// By growing memory: none is quicker in as much or less.
std::vector<const TunedCandidate*> frontier_of(const std::vector<TunedCandidate>& layouts);

void add_layouts(Html& page, const TuneResult& result);

}  // namespace prun
