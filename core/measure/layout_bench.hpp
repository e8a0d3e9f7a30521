// Measures a recipe's kernels and exchanges where they are: within steps of all its ranks, which are threads
// of this process.
#pragma once

#include "assemble/plugin_host.hpp"
#include "measure/kernel_timer.hpp"

namespace prun {

// Kernels of all ranks, each shape once. Exchanges are added to `exchanges`: what an exchange takes from when
// the last member is there, and how long the members wait for the last one on average.
std::vector<KernelTime> time_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                    std::int64_t steps, std::map<ExactExchange, ExchangeTime>& exchanges);

}  // namespace prun
