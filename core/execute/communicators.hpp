// Holds the communicators of one rank: one for each queue of its plan that communicates, and one of all ranks
// for each plugin that splits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "execute/queue_comm.hpp"
#include "prun/device.hpp"

namespace prun {

// Lets ranks meet before they can communicate: every member gives a text, each gets all of them in the order
// of the members. The call blocks; `channel` names the occasion.
using Exchange = std::function<std::vector<std::string>(std::string_view channel,
                                                        std::span<const int> members, std::string_view mine)>;

// Describes a group of ranks as one of its members makes it, or any rank if it is split from one of all
// ranks.
struct CommMembers {
  std::string name;
  std::vector<int> members;
  std::int64_t rank = 0;
  Communicator parent = nullptr;
  std::int32_t groups = 1;
};
// Makes a communicator, collectively. Returns null for a rank that is not among the members.
Communicator make_communicator(CommInterface& comm, const CommMembers& of, const Exchange& exchange);

// States what a rank's communicators are made from.
struct CommMaking {
  const Mesh& mesh;
  std::int64_t rank = 0;
  std::function<const Plan&(std::int64_t rank)> plan_of;  // returns the plan of any rank
  DeviceInterface& device;                                // device whose memory is exchanged
  // These return the name of the comm plugin that carries an axis' traffic, and a plugin of that name.
  std::function<std::string(const std::string& axis)> plugin_of_axis;
  std::function<std::shared_ptr<CommInterface>(const std::string& plugin)> make_plugin;
  const Exchange& exchange;
};

// Says how ranks reach each other over an axis, as the comm plugin that carries it finds.
struct AxisLinks {
  std::string axis, plugin;
  std::string found, mend;  // "shared memory (sysv)"; what makes it faster, empty where nothing does

  friend auto operator<=>(const AxisLinks&, const AxisLinks&) = default;  // NOLINT: no null in it
};
std::string to_text(const AxisLinks& links);

class Communicators {
 public:
  // Makes the communicators; this is collective over all ranks of the mesh. Nothing of `making` is needed
  // after it.
  explicit Communicators(const CommMaking& making);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Returns communicators by queue; an entry is empty if a queue does not communicate.
  const std::vector<QueueComm>& queues() const { return queues_; }
  // Returns the members by queue.
  const std::vector<std::vector<int>>& members() const { return members_; }
  // Returns the links of all ranks' axes.
  const std::set<AxisLinks>& links() const { return links_; }
  CommCounters counters(std::size_t queue) const;
  // Makes every thread that waits for a peer give up. Any thread may call it.
  void abort();

 private:
  struct Plugin {
    std::shared_ptr<CommInterface> comm;
    CommInfo info;
    Communicator world = nullptr;  // communicator of all ranks, if the plugin splits
    std::int32_t groups = 0;       // groups that a rank is in: the most of any
  };

  Plugin& plugin_of(const CommMaking& making, const std::string& axis);
  void make(const CommMaking& making, std::size_t queue, const Plugin& plugin);
  std::set<AxisLinks> own_links(const CommMaking& making) const;
  void destroy();

  std::map<std::string, Plugin> plugins_;  // plugins by name
  std::vector<QueueComm> queues_;
  std::vector<std::vector<int>> members_;
  std::set<AxisLinks> links_;
};

}  // namespace prun
