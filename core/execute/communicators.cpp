#include "execute/communicators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace prun {
namespace {

// What a comm plugin's exchange calls: one channel, used again and again.
struct Meeting {
  const Exchange& exchange;
  std::string channel;
  std::span<const int> members;

  void all_gather(const void* mine, std::uint64_t bytes, void* all) const {
    const std::string_view own(static_cast<const char*>(mine), bytes);
    const std::vector<std::string> texts = exchange(channel, members, own);
    char* at = static_cast<char*>(all);
    for (const std::string& text : texts) {
      if (text.size() != bytes)
        throw_error(ErrorCode::comm_failed, channel, ": a member gave ", text.size(), " bytes, not ", bytes);
      std::memcpy(at, text.data(), bytes);
      at += bytes;
    }
  }
};

std::string group_name(const std::string& queue, const std::vector<int>& members) {
  return detail::concat(queue, "[", members.front(), "..", members.back(), "]");
}

// Making one takes all its members. All ranks go by the names, so nobody waits for somebody who waits for
// them: whoever is not here yet makes one of an earlier name.
std::vector<std::size_t> by_name(const std::vector<QueueInfo>& queues) {
  std::vector<std::size_t> order(queues.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return queues[a].name < queues[b].name; });
  return order;
}

}  // namespace

Communicators::Communicators(const Assembly& assembly, PluginHost& plugins, const Exchange& exchange) {
  const std::vector<QueueInfo>& queues = assembly.plan().queues;
  queues_.resize(queues.size());
  members_.resize(queues.size());
  for (const std::size_t q : by_name(queues)) {
    if (!queues[q].communicates()) continue;
    const std::string& axis = assembly.mesh().name(queues[q].axis);
    members_[q] = queues[q].members(assembly.mesh(), assembly.rank());
    std::shared_ptr<CommInterface>& plugin = plugins_[axis];
    if (!plugin) plugin = comm_of_axis(assembly.recipe(), assembly.device_info(), plugins, axis);
    connect(assembly, q, *plugin, exchange);
  }
}

Communicators::~Communicators() {
  for (QueueComm& queue : queues_)
    if (queue.comm) queue.comm->destroy(queue.communicator);
}

void Communicators::connect(const Assembly& assembly, std::size_t queue, CommInterface& comm,
                            const Exchange& exchange) {
  const std::vector<int>& members = members_[queue];
  const std::string name = group_name(assembly.plan().queues[queue].name, members);
  Meeting meeting{exchange, name, members};
  ExchangeApi api{};
  api.struct_size = sizeof api;
  api.context = &meeting;
  api.all_gather = [](void* context, const void* mine, std::uint64_t bytes, void* all) {
    return guard([&] { static_cast<const Meeting*>(context)->all_gather(mine, bytes, all); });
  };
  CommGroup group;
  group.name = name;
  group.size = static_cast<std::int32_t>(members.size());
  group.rank = place_among(members, assembly.rank());
  group.exchange = &api;
  raise(comm.create(group, &queues_[queue].communicator));
  CommInfo info;
  raise(comm.info(&info));
  queues_[queue].enqueues = info.enqueues;
  queues_[queue].comm = &comm;
}

CommCounters Communicators::counters(std::size_t queue) const {
  CommCounters counters;
  if (queues_[queue].comm) raise(queues_[queue].comm->counters(queues_[queue].communicator, &counters));
  return counters;
}

void Communicators::abort() {
  for (QueueComm& queue : queues_)
    if (queue.comm) queue.comm->abort(queue.communicator);
}

}  // namespace prun
