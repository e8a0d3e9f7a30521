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

// Payload bytes that the assembly's rank sends in a step on a queue, as its comm plugin will count them.
std::uint64_t planned_bytes(const Assembly& assembly, CommInterface& comm, std::size_t queue);

// The same for every queue; 0 for those that do not communicate.
std::vector<std::uint64_t> planned_traffic(const Assembly& assembly, PluginHost& plugins);

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
