// Counts how much ranks send to which others in a step.
#pragma once

#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"

namespace prun {

// Is one of a rank's queues that communicate.
struct Link {
  std::int64_t rank = 0;
  std::string queue, axis, comm;
  std::vector<int> members;
  double bytes = 0;  // counts those that the rank sends, as its comm plugin does
};

struct TrafficMatrix {
  std::int64_t ranks = 0;  // counts ranks of the mesh; the first `bytes.size()` have a row
  // Bytes are by sender and receiver. Those for a group are shared out evenly among its other members: which
  // of them a link leads to is up to the comm plugin.
  std::vector<std::vector<double>> bytes;
  std::vector<Link> links;  // those of the ranks with a row
};

TrafficMatrix traffic_matrix(const Assembly& assembly, PluginHost& plugins, std::int64_t most_rows);

}  // namespace prun
