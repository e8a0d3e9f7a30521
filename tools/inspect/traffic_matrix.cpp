#include "inspect/traffic_matrix.hpp"

#include <algorithm>

#include "train/assemble/comm_needs.hpp"

namespace prun {

TrafficMatrix traffic_matrix(const Assembly& assembly, PluginHost& plugins, std::int64_t most_rows) {
  TrafficMatrix matrix;
  matrix.ranks = assembly.mesh().world();
  const std::int64_t shown = std::min(matrix.ranks, most_rows);
  matrix.bytes.assign(static_cast<std::size_t>(shown), std::vector<double>(static_cast<std::size_t>(shown)));
  for (std::int64_t rank = 0; rank < shown; ++rank) {
    const Plan& plan = assembly.plan_of(rank);
    each_comm({assembly.recipe(), assembly.device_info(), plugins, assembly.mesh(), plan, rank},
              [&](const QueueTraffic& traffic) {
                const QueueInfo& queue = plan.queues[traffic.queue];
                const std::string& axis = assembly.mesh().name(queue.axis);
                Link link{rank,
                          queue.name,
                          axis,
                          comm_of_axis(assembly.recipe(), plugins, axis),
                          queue.members(assembly.mesh(), rank),
                          static_cast<double>(traffic.needs.bytes_sent)};
                const double share =
                    link.bytes / std::max<double>(1, static_cast<double>(link.members.size()) - 1);
                for (const int member : link.members)
                  if (member != rank && member < shown)
                    matrix.bytes[static_cast<std::size_t>(rank)][static_cast<std::size_t>(member)] += share;
                matrix.links.push_back(std::move(link));
              });
  }
  return matrix;
}

}  // namespace prun
