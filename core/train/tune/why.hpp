// Writes sentences about a search's result: what bounds the best, why the next one loses, and what one more
// rank, one more GiB or twice the link would give, by planning it.
#pragma once

#include <string>
#include <vector>

#include "train/tune/tune.hpp"

namespace prun {

// `base` is that of the search, whose recipe is this one without [mesh].
std::vector<std::string> why(const Recipe& recipe, PluginHost& plugins, const TrialBase& base,
                             const TuneRequest& request, const TuneResult& result);

}  // namespace prun
