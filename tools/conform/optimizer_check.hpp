// Checks an optimizer with one parameter.
#pragma once

#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

CheckFinding check_optimizer(const TriedPlugin& plugin, const std::vector<SearchPlace>& places);

}  // namespace prun
