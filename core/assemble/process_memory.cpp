#include "assemble/process_memory.hpp"

#include <set>

namespace prun {

std::int64_t process_need(const RankTraffic& rank) {
  std::int64_t bytes = base_process_bytes;
  std::set<std::string> known;
  each_comm(rank, [&](std::size_t, CommInterface& comm, const CommNeeds& needs) {
    CommInfo info;
    raise(comm.info(&info));
    if (known.emplace(info.name.view()).second) bytes += info.process_bytes;
    bytes += info.communicator_bytes + needs.memory_bytes;
  });
  return bytes;
}

}  // namespace prun
