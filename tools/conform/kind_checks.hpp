// What `prun plugins check` asks of plugins of one kind, beyond the border that all share.
#pragma once

#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// `places`: where other plugins are found that one is tried with, such as models for a strategy. What needs
// one that is not there is left out, and said. `given`: as for trial_schema().
std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places, const std::string& given = "");

}  // namespace prun
