#include "execute/communicators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>

#include "base/narrow.hpp"
#include "base/text.hpp"
#include "plan/exchange_needs.hpp"
#include "plugin/finding.hpp"

namespace prun {

// ------------------------------------------------------------------- queue comm

std::vector<std::size_t> by_name(const std::vector<QueueInfo>& queues) {
  std::vector<std::size_t> order(queues.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return queues[a].name < queues[b].name; });
  return order;
}

AttachedMemory::~AttachedMemory() {
  for (const QueueComm& queue : attached_) queue.comm->detach_memory(queue.communicator);
}

void AttachedMemory::attach(const QueueComm& queue, std::span<std::byte> memory, std::span<const CommOp> ops,
                            void* stream) {
  raise(
      queue.comm->attach_memory(queue.communicator, memory.data(), static_cast<std::int64_t>(memory.size())));
  attached_.push_back(queue);
  connect(queue, ops, stream);
}

void AttachedMemory::connect(const QueueComm& queue, std::span<const CommOp> ops, void* stream) {
  const std::vector<CommOp> once = distinct(ops);
  raise(queue.comm->connect(queue.communicator, once.data(), static_cast<std::int64_t>(once.size()), stream));
}

std::vector<CommOp> distinct(std::span<const CommOp> ops) {
  std::set<std::tuple<CommKind, Reduction, DType, std::int32_t, std::int64_t>> seen;
  std::vector<CommOp> once;
  for (const CommOp& op : ops)
    if (seen.emplace(op.kind, op.reduction, op.dtype, op.peer, op.count).second) once.push_back(op);
  return once;
}

// ------------------------------------------------------------------- rank devices

DeviceInfo info_of(DeviceInterface& device) {
  DeviceInfo info;
  raise(device.info(&info));
  return info;
}

DeviceInterface& keeper_of_counters(const Devices& devices) {
  DeviceInterface* keeper = nullptr;
  for (DeviceInterface* device : devices) {
    const DeviceInfo info = info_of(*device);
    if (!info.asynchronous) continue;
    if (!keeper) keeper = device;
    if (const DeviceInfo first = info_of(*keeper); first.kind.view() != info.kind.view())
      throw_error(ErrorCode::unsupported, "cannot use devices '", first.name.view(), "' and '",
                  info.name.view(),
                  "' in one rank: both are asynchronous, and neither reaches the other's pinned memory; "
                  "leave one of them out");
  }
  return keeper ? *keeper : *devices.front();
}

void check_poison(const Devices& devices) {
  for (DeviceInterface* device : devices)
    if (const DeviceInfo info = info_of(*device); !info.host_memory && !info.tier)
      throw_error(ErrorCode::unsupported, "cannot apply run.poison on device '", info.name.view(),
                  "': the host cannot write its memory; leave run.poison out");
}

void inform_devices(const Plan& plan, const Devices& devices, const std::vector<QueueComm>& comms) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    bool others = false, staged = false;
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      const bool own = static_cast<std::size_t>(plan.queues[q].device) == d;
      others |= !own || plan.queues[q].axis != no_axis;
      staged |= own && comms[q].comm && comms[q].staged;
    }
    if (others) raise(devices[d]->waits_for_others(staged));
  }
}

namespace {

// ------------------------------------------------------------------- communicators

// A comm plugin's exchange calls this: it uses one channel again and again.
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
  std::size_t own = not_here;  // number of this rank's queue of that name
};

// Returns the queues that communicate, of all ranks.
std::map<std::string, Named> queues_by_name(const CommMaking& making) {
  std::map<std::string, Named> all;
  std::set<const Plan*> seen;
  for (const int rank : making.mesh.ranks()) {
    const Plan& plan = making.plan_of(rank);
    if (!seen.insert(&plan).second) continue;
    for (const QueueInfo& queue : plan.queues)
      if (queue.communicates()) all[queue.name].axis = queue.axis;
  }
  const std::vector<QueueInfo>& own = making.plan_of(making.rank).queues;
  for (std::size_t q = 0; q < own.size(); ++q)
    if (own[q].communicates()) all.at(own[q].name).own = q;
  return all;
}

// Returns the largest number of a plugin's groups that any rank is in.
std::int32_t most_groups(const CommMaking& making, const std::string& plugin) {
  std::int32_t most = 0;
  for (const int rank : making.mesh.ranks()) {
    const std::vector<QueueInfo>& queues = making.plan_of(rank).queues;
    const auto count = std::count_if(queues.begin(), queues.end(), [&](const QueueInfo& queue) {
      return queue.communicates() && making.plugin_of_axis(making.mesh.name(queue.axis)) == plugin;
    });
    most = std::max(most, static_cast<std::int32_t>(count));
  }
  return most;
}

// Returns those of all ranks: what one rank's groups go by says nothing of another's.
std::set<AxisLinks> shared_links(const CommMaking& making, const std::set<AxisLinks>& own) {
  std::string mine;
  for (const AxisLinks& one : own)
    mine += detail::concat(one.axis, "|", one.plugin, "|", one.found, "|", one.mend, "\n");
  std::set<AxisLinks> all;
  for (const std::string& text : making.exchange("links", making.mesh.ranks(), mine))
    for (const std::string_view line : split(text, '\n')) {
      const std::vector<std::string_view> parts = split(line, '|');
      if (parts.size() != 4) continue;  // behind the last line
      all.insert(
          {std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), std::string(parts[3])});
    }
  return all;
}

}  // namespace

std::string to_text(const AxisLinks& links) {
  return "axis " + links.axis + " goes by " + links.plugin + ": " + links.found +
         (links.mend.empty() ? "" : "; " + links.mend);
}

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
  group.size = takes_part ? narrow<std::int32_t>(of.members.size()) : 0;
  group.exchange = takes_part ? &api : nullptr;
  group.parent = of.parent;
  group.groups = of.groups;
  // Groups of one name have no member in common.
  if (takes_part && of.parent) group.color = of.members.front();
  Communicator made = nullptr;
  raise(comm.create(group, &made));
  return made;
}

// Groups are made in the order of the names, like everything that takes all members.
Communicators::Communicators(const CommMaking& making)
    : queues_(making.plan_of(making.rank).queues.size()), members_(queues_.size()) {
  raise(making.device.make_current());
  try {
    for (const auto& [name, queue] : queues_by_name(making)) {
      Plugin& plugin = plugin_of(making, making.mesh.name(queue.axis));
      if (queue.own != not_here)
        make(making, queue.own, plugin);
      else if (plugin.info.splits)
        make_communicator(*plugin.comm, {name, {}, making.rank, plugin.world, plugin.groups},
                          making.exchange);
    }
    links_ = shared_links(making, own_links(making));
  } catch (...) {
    destroy();
    throw;
  }
}

Communicators::~Communicators() { destroy(); }

// A plugin that says nothing of a group has its name stand for it.
std::set<AxisLinks> Communicators::own_links(const CommMaking& making) const {
  std::set<AxisLinks> links;
  std::map<std::string, Findings> by_plugin;
  for (const auto& [name, plugin] : plugins_) by_plugin[name] = examined(*plugin.comm);
  const std::vector<QueueInfo>& queues = making.plan_of(making.rank).queues;
  for (std::size_t q = 0; q < queues.size(); ++q) {
    if (!queues[q].communicates()) continue;
    const std::string axis = making.mesh.name(queues[q].axis), plugin = making.plugin_of_axis(axis);
    const Findings& all = by_plugin.at(plugin);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Finding& one) {
      return one.what == group_name(queues[q].name, members_[q]);
    });
    links.insert(found == all.end()
                     ? AxisLinks{axis, plugin, std::string(plugins_.at(plugin).info.name.view()), ""}
                     : AxisLinks{axis, plugin, found->found, found->mend});
  }
  return links;
}

void Communicators::destroy() {
  for (QueueComm& queue : queues_)
    if (queue.comm) queue.comm->destroy(queue.communicator);
  for (auto& [name, plugin] : plugins_)
    if (plugin.world) plugin.comm->destroy(plugin.world);
}

// The plugin is made at its first use, which comes at the same name everywhere.
Communicators::Plugin& Communicators::plugin_of(const CommMaking& making, const std::string& axis) {
  const std::string name = making.plugin_of_axis(axis);
  Plugin& plugin = plugins_[name];
  if (plugin.comm) return plugin;
  plugin.comm = making.make_plugin(name);
  raise(plugin.comm->info(&plugin.info));
  plugin.groups = most_groups(making, name);
  if (plugin.info.splits)
    plugin.world = make_communicator(
        *plugin.comm, {name, making.mesh.ranks(), making.rank, nullptr, plugin.groups}, making.exchange);
  return plugin;
}

void Communicators::make(const CommMaking& making, std::size_t queue, const Plugin& plugin) {
  const QueueInfo& info = making.plan_of(making.rank).queues[queue];
  members_[queue] = info.members(making.mesh, making.rank);
  queues_[queue].communicator = make_communicator(
      *plugin.comm, {info.name, members_[queue], making.rank, plugin.world, plugin.groups}, making.exchange);
  queues_[queue].members = static_cast<std::int64_t>(members_[queue].size());
  queues_[queue].enqueues = plugin.info.enqueues;
  queues_[queue].staged = is_staged(info_of(making.device), plugin.info);
  queues_[queue].comm = plugin.comm.get();
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
