#include "assemble/process_memory.hpp"

#include <set>

namespace prun {

ProcessNeed process_need(const RankTraffic& rank) {
  ProcessNeed all{base_process_bytes + rank.device.process_bytes, rank.device.process_device_bytes};
  std::set<std::string> known;
  each_comm(rank, [&](const QueueTraffic& queue) {
    const CommInfo& info = queue.comm;
    const bool first = known.emplace(info.name.view()).second;
    const std::int64_t communicators = first && info.splits ? 2 : 1;  // one of all ranks
    all.bytes += (first ? info.process_bytes : 0) + communicators * info.communicator_bytes +
                 queue.needs.memory_bytes + queue.staging.bytes;
    all.device_bytes +=
        (first ? info.process_device_bytes : 0) + communicators * info.communicator_device_bytes;
  });
  return all;
}

}  // namespace prun
