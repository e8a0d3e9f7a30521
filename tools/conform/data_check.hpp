// Checks samples of a data plugin, read in several orders.
#pragma once

#include "conform/conformance.hpp"

namespace prun {

CheckFinding check_data(const TriedPlugin& plugin);

}  // namespace prun
