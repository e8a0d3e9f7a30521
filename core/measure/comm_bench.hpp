// Measures exchanges between ranks that are threads of this process, through a comm plugin.
#pragma once

#include "assemble/plugin_host.hpp"
#include "sim/costs.hpp"

namespace prun {

// All kinds, 1 KiB to 64 MiB, each as the executor does it: started and finished one at a time.
CostTable bench_comm(const std::vector<SearchPlace>& places, const std::string& plugin, std::int64_t ranks,
                     std::int64_t largest = std::int64_t{64} << 20);

}  // namespace prun
