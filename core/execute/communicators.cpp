#include "execute/communicators.hpp"

#include <algorithm>
#include <cstring>
#include <set>

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

constexpr std::size_t not_here = static_cast<std::size_t>(-1);

struct Named {
  AxisId axis = no_axis;
  std::size_t own = not_here;  // this rank's queue of that name
};

// The queues that communicate, of all ranks.
std::map<std::string, Named> queues_by_name(const Assembly& assembly) {
  std::map<std::string, Named> all;
  std::set<const Plan*> seen;
  for (const int rank : assembly.mesh().ranks()) {
    const Plan& plan = assembly.plan_of(rank);
    if (!seen.insert(&plan).second) continue;
    for (const QueueInfo& queue : plan.queues)
      if (queue.communicates()) all[queue.name].axis = queue.axis;
  }
  const std::vector<QueueInfo>& own = assembly.plan().queues;
  for (std::size_t q = 0; q < own.size(); ++q)
    if (own[q].communicates()) all.at(own[q].name).own = q;
  return all;
}

}  // namespace

Communicator make_communicator(CommInterface& comm, const CommMembers& of, const Exchange& exchange) {
  const bool takes_part = std::find(of.members.begin(), of.members.end(), of.rank) != of.members.end();
  const std::string name = takes_part ? group_name(of.name, of.members) : of.name;
  Meeting meeting{exchange, name, of.members};
  ExchangeApi api{};
  api.struct_size = sizeof api;
  api.context = &meeting;
  api.all_gather = [](void* context, const void* mine, std::uint64_t bytes, void* all) {
    return guard([&] { static_cast<const Meeting*>(context)->all_gather(mine, bytes, all); });
  };
  CommGroup group;
  group.name = name;
  group.rank = takes_part ? place_among(of.members, of.rank) : -1;
  group.size = takes_part ? static_cast<std::int32_t>(of.members.size()) : 0;
  group.exchange = takes_part ? &api : nullptr;
  group.parent = of.parent;
  group.groups = of.groups;
  // Groups of one name have no member in common.
  if (takes_part && of.parent) group.color = of.members.front();
  Communicator made = nullptr;
  raise(comm.create(group, &made));
  return made;
}

// In the order of the names, as all that takes all members.
Communicators::Communicators(const Assembly& assembly, PluginHost& plugins, const Exchange& exchange)
    : assembly_(assembly), host_(plugins), exchange_(exchange) {
  queues_.resize(assembly.plan().queues.size());
  members_.resize(queues_.size());
  raise(assembly.devices().front()->make_current());
  try {
    for (const auto& [name, queue] : queues_by_name(assembly)) {
      Plugin& plugin = plugin_of(assembly.mesh().name(queue.axis));
      if (queue.own != not_here)
        make(queue.own, plugin);
      else if (plugin.info.splits)
        create(plugin, name, {});
    }
  } catch (...) {
    destroy();
    throw;
  }
}

Communicators::~Communicators() { destroy(); }

void Communicators::destroy() {
  for (QueueComm& queue : queues_)
    if (queue.comm) queue.comm->destroy(queue.communicator);
  for (auto& [name, plugin] : plugins_)
    if (plugin.world) plugin.comm->destroy(plugin.world);
}

// Made at its first use, which comes at the same name everywhere.
Communicators::Plugin& Communicators::plugin_of(const std::string& axis) {
  const std::string name = comm_of_axis(assembly_.recipe(), host_, axis);
  Plugin& plugin = plugins_[name];
  if (plugin.comm) return plugin;
  plugin.comm = make_comm(assembly_.recipe(), assembly_.device_info(), host_, name);
  raise(plugin.comm->info(&plugin.info));
  plugin.groups = most_groups(name);
  if (plugin.info.splits) plugin.world = create(plugin, name, assembly_.mesh().ranks());
  return plugin;
}

std::int32_t Communicators::most_groups(const std::string& plugin) const {
  std::int32_t most = 0;
  for (const int rank : assembly_.mesh().ranks()) {
    const std::vector<QueueInfo>& queues = assembly_.plan_of(rank).queues;
    const auto count = std::count_if(queues.begin(), queues.end(), [&](const QueueInfo& queue) {
      return queue.communicates() &&
             comm_of_axis(assembly_.recipe(), host_, assembly_.mesh().name(queue.axis)) == plugin;
    });
    most = std::max(most, static_cast<std::int32_t>(count));
  }
  return most;
}

void Communicators::make(std::size_t queue, const Plugin& plugin) {
  const QueueInfo& info = assembly_.plan().queues[queue];
  members_[queue] = info.members(assembly_.mesh(), assembly_.rank());
  queues_[queue].communicator = create(plugin, info.name, members_[queue]);
  queues_[queue].members = static_cast<std::int64_t>(members_[queue].size());
  queues_[queue].enqueues = plugin.info.enqueues;
  queues_[queue].staged = is_staged(assembly_.device_info(), plugin.info);
  queues_[queue].comm = plugin.comm.get();
}

Communicator Communicators::create(const Plugin& plugin, const std::string& queue,
                                   const std::vector<int>& members) const {
  return make_communicator(*plugin.comm, {queue, members, assembly_.rank(), plugin.world, plugin.groups},
                           exchange_);
}

CommCounters Communicators::counters(std::size_t queue) const {
  CommCounters counters;
  if (queues_[queue].comm) raise(queues_[queue].comm->counters(queues_[queue].communicator, &counters));
  return counters;
}

void Communicators::abort() {
  for (QueueComm& queue : queues_)
    if (queue.comm) queue.comm->abort(queue.communicator);
  for (auto& [name, plugin] : plugins_)
    if (plugin.world) plugin.comm->abort(plugin.world);
}

}  // namespace prun
