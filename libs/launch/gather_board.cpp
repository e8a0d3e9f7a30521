#include "launch/gather_board.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {

// Returns the gather that waits for this contribution, or a new one.
GatherBoard::Gather& GatherBoard::gather_for(const GatherRequest& request, Clock::time_point now) {
  for (const auto& gather : gathers_)
    if (!gather->done && gather->channel == request.channel && gather->members == request.members)
      return *gather;
  auto gather = std::make_unique<Gather>();
  gather->channel = request.channel;
  gather->members = request.members;
  gather->parts.resize(request.members.size());
  gather->here.resize(request.members.size());
  gather->missing = request.members.size();
  gather->limit_ms = request.limit_ms;
  gather->deadline = now + std::chrono::milliseconds(request.limit_ms);
  gathers_.push_back(std::move(gather));
  return *gathers_.back();
}

GatherBoard::Gather& GatherBoard::add(int rank, int world, GatherRequest request, Clock::time_point now) {
  const auto& members = request.members;
  for (const std::int32_t member : members)
    if (member < 0 || member >= world) throw_error(ErrorCode::comm_failed, "no such rank: ", member);
  const auto me = std::find(members.begin(), members.end(), rank);
  if (me == members.end())
    throw_error(ErrorCode::comm_failed, "rank ", rank, " is no member of its own group");
  const auto slot = static_cast<std::size_t>(me - members.begin());
  Gather& gather = gather_for(request, now);
  if (gather.here[slot]) throw_error(ErrorCode::comm_failed, "rank ", rank, " contributes twice");
  gather.here[slot] = 1;
  gather.parts[slot] = std::move(request.bytes);
  gather.done = --gather.missing == 0;
  return gather;
}

const GatherBoard::Gather* GatherBoard::waiting_for(int rank) const {
  for (const auto& gather : gathers_) {
    const auto& members = gather->members;
    const auto slot =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    if (!gather->done && slot != members.size() && !gather->here[slot]) return gather.get();
  }
  return nullptr;
}

const GatherBoard::Gather* GatherBoard::late(Clock::time_point now) const {
  for (const auto& gather : gathers_)
    if (!gather->done && gather->deadline <= now) return gather.get();
  return nullptr;
}

GatherBoard::Absent GatherBoard::absent_of(const Gather& gather) {
  Absent absent;
  std::string list;
  int count = 0;
  for (std::size_t i = 0; i < gather.members.size(); ++i) {
    if (gather.here[i]) continue;
    if (count == 0) absent.first = gather.members[i];
    if (++count <= 8) list += (count > 1 ? ", " : "") + std::to_string(gather.members[i]);
  }
  absent.text = (count == 1 ? "rank " : "ranks ") + list + (count > 8 ? ", ..." : "");
  return absent;
}

void GatherBoard::end_all() {
  for (const auto& gather : gathers_) gather->done = true;
}

void GatherBoard::sweep() {
  std::erase_if(gathers_, [](const auto& gather) { return gather->done; });
}

}  // namespace prun
