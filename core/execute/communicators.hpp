// The communicators of one rank: one for each queue of its plan that communicates.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assemble/assembly.hpp"
#include "assemble/comm_needs.hpp"
#include "execute/executor.hpp"

namespace prun {

// How ranks meet before they can communicate: every member gives a text, each gets all of them in the order
// of the members. Blocking; `channel` names the occasion.
using Exchange = std::function<std::vector<std::string>(std::string_view channel,
                                                        std::span<const int> members, std::string_view mine)>;

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
