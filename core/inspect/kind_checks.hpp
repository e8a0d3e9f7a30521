// What `prun plugins check` asks of plugins of one kind, beyond the border that all share.
#pragma once

#include <vector>

#include "plugin/conformance.hpp"

namespace prun {

std::vector<KindCheck> kind_checks();

}  // namespace prun
