// Measures exchanges between the ranks of a recipe, from and to the memory of its device: between threads of
// this process or, where the device wants that, between processes.
#pragma once

#include <functional>

#include "estimate/costs.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

inline constexpr std::int64_t largest_exchange = std::int64_t{64} << 20;

// Returns a recipe of nothing but ranks on the CPU, whose exchanges are those of the host's memory.
Recipe recipe_of_ranks(std::int64_t ranks, PluginHost& plugins);

// Returns the name by which a cost table knows the memory that the recipe's ranks exchange.
std::string memory_of_exchanges(const Recipe& recipe, PluginHost& plugins);

// Measures all kinds, from 1 KiB on, each as the executor does it, by the comm plugin of the first axis.
// `command` is as for ask_ranks().
CostTable bench_comm(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::vector<std::string>& command = {}, std::int64_t largest = largest_exchange);

// Does what a process does that is a rank of the measurement, and returns its exit code.
int answer_bench_comm(const Recipe& recipe, const std::vector<SearchPlace>& places);

// Measures between ranks that a launcher has started, wherever they are, and gives the table to `take` on the
// first; returns the exit code.
int bench_comm_between(const Recipe& recipe, const std::vector<SearchPlace>& places,
                       const std::function<void(const CostTable& table)>& take);

// Returns the bytes that a link carries for each byte of an exchange, as nccl-tests counts them for its bus
// bandwidth.
double bus_share(CommKind kind, std::int64_t members);

}  // namespace prun
