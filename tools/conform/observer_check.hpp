// Checks an observer with a run that did not take place.
#pragma once

#include "conform/conformance.hpp"

namespace prun {

CheckFinding check_observer(const TriedPlugin& plugin);

}  // namespace prun
