// A device without a plan: its memory, a queue, copies and the kernels that it says it has.
#pragma once

#include "plugin/conformance.hpp"

namespace prun {

Finding check_device(const TriedPlugin& plugin);

}  // namespace prun
