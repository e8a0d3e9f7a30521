// Finds which comm plugin carries the traffic of an axis, and what each plugin will send and need for a plan.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/exchange_needs.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns the name of the comm plugin that carries an axis' traffic; several axes together ("dp+cp") have
// one.
std::string comm_of_axis(const Recipe& recipe, PluginHost& plugins, const std::string& axis);

// Makes a comm plugin; throws if it cannot move what is in the device's memory.
std::shared_ptr<CommInterface> make_comm(const Recipe& recipe, const DeviceInfo& device, PluginHost& plugins,
                                         const std::string& name);

// Holds a rank and everything that decides on its communication.
struct RankTraffic {
  const Recipe& recipe;
  const DeviceInfo& device;
  PluginHost& plugins;
  const Mesh& mesh;
  const Plan& plan;
  std::int64_t rank;
};

// Describes a queue that communicates.
struct QueueTraffic {
  std::size_t queue = 0;
  CommInfo comm;
  CommNeeds needs;
  StagingNeeds staging;
};

// Calls body(queue's traffic) for every queue of a rank that communicates.
template <class Body>
void each_comm(const RankTraffic& of, Body&& body) {
  std::map<std::string, std::shared_ptr<CommInterface>> by_name;
  for (std::size_t q = 0; q < of.plan.queues.size(); ++q) {
    if (!of.plan.queues[q].communicates()) continue;
    const std::string name = comm_of_axis(of.recipe, of.plugins, of.mesh.name(of.plan.queues[q].axis));
    std::shared_ptr<CommInterface>& comm = by_name[name];
    if (!comm) comm = make_comm(of.recipe, of.device, of.plugins, name);
    QueueTraffic traffic;
    traffic.queue = q;
    raise(comm->info(&traffic.comm));
    const bool staged = is_staged(of.device, traffic.comm);
    traffic.needs = planned_needs(of.mesh, of.plan, of.rank, *comm, q, staged);
    if (staged)
      traffic.staging = staging_needs(
          of.plan, q, static_cast<std::int64_t>(of.plan.queues[q].members(of.mesh, of.rank).size()));
    body(traffic);
  }
}

}  // namespace prun
