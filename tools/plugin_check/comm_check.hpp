// Checks groups of two and three ranks, as threads: every exchange is compared with its definition.
#pragma once

#include "plugin_check/conformance.hpp"

namespace prun {

CheckFinding check_comm(const TriedPlugin& plugin);

// A rank that waits for another that never comes must give up when it is aborted.
CheckFinding check_comm_abort(const TriedPlugin& plugin);

}  // namespace prun
