// Counts which ranks send how much to which in a step.
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
  double bytes = 0;  // that the rank sends, as its comm plugin counts them
};

struct TrafficMatrix {
  std::int64_t ranks = 0;  // of the mesh; of the first `bytes.size()` there is a row
  // Bytes are by sender and receiver. What goes to a group is shared out evenly among its other members:
  // which of them a link leads to is the comm plugin's business.
  std::vector<std::vector<double>> bytes;
  std::vector<Link> links;  // of the ranks with a row
};

TrafficMatrix traffic_matrix(const Assembly& assembly, PluginHost& plugins, std::int64_t most_rows);

}  // namespace prun
