// The communicators of one rank: one for each queue of its plan that communicates.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/assembly.hpp"
#include "run/executor.hpp"

namespace prun {

// How ranks meet before they can communicate: every member gives a text, each gets all of them in the order
// of the members. Blocking; `channel` names the occasion.
using Exchange = std::function<std::vector<std::string>(std::string_view channel,
                                                        std::span<const int> members, std::string_view mine)>;

// The comm plugin that carries an axis' traffic.
std::shared_ptr<CommInterface> comm_of_axis(const Assembly& assembly, PluginHost& plugins,
                                            const std::string& axis);

// What a rank sends in a step on a queue, as its comm plugin will count it, and what that plugin needs for
// the largest exchange: a queue has one at a time under way.
CommNeeds planned_needs(const Assembly& assembly, CommInterface& comm, std::int64_t rank, std::size_t queue);

// Calls body(queue, comm plugin) for every queue of a rank that communicates.
template <class Body>
void each_comm(const Assembly& assembly, PluginHost& plugins, std::int64_t rank, Body&& body) {
  std::map<std::string, std::shared_ptr<CommInterface>> by_axis;
  const std::vector<QueueInfo>& queues = assembly.plan_of(rank).queues;
  for (std::size_t q = 0; q < queues.size(); ++q) {
    if (queues[q].axis < 0) continue;
    const std::string& axis = assembly.mesh().axes()[static_cast<std::size_t>(queues[q].axis)].name;
    std::shared_ptr<CommInterface>& comm = by_axis[axis];
    if (!comm) comm = comm_of_axis(assembly, plugins, axis);
    body(q, *comm);
  }
}

class Communicators {
 public:
  // Collective over all ranks of the mesh.
  Communicators(const Assembly& assembly, PluginHost& plugins, const Exchange& exchange);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // By queue; empty where a queue does not communicate.
  const std::vector<QueueComm>& queues() const { return queues_; }
  // Names and members, by queue.
  const std::vector<std::vector<int>>& members() const { return members_; }
  CommCounters counters(std::size_t queue) const;
  // From any thread: whoever waits for a peer gives up.
  void abort();

 private:
  void connect(const Assembly& assembly, std::size_t queue, CommInterface& comm, const Exchange& exchange);

  std::map<std::string, std::shared_ptr<CommInterface>> plugins_;  // by axis
  std::vector<QueueComm> queues_;
  std::vector<std::vector<int>> members_;
};

}  // namespace prun
