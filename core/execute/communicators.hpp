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

#include "execute/plan_memory.hpp"
#include "plan/plan.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- queue comm
// Holds the communicator of a queue, and what its plugin must know of the plan before the first step.

// Holds the communicator of a queue, or nothing.
struct QueueComm {
  CommInterface* comm = nullptr;
  Communicator communicator = nullptr;
  bool enqueues = false;
  std::int64_t members = 1;
  bool staged = false;  // the plugin moves only host memory, and the device's is not
};

// Returns the queues by name. Work that takes all members of a communicator is done in the order of the
// queues' names on all ranks, so no two ranks wait for each other: a rank that is not here yet is at a queue
// of an earlier name.
std::vector<std::size_t> by_name(const std::vector<QueueInfo>& queues);

// Makes memory known to communicators, for as long as this lives.
class AttachedMemory {
 public:
  AttachedMemory() = default;
  ~AttachedMemory();
  AttachedMemory(const AttachedMemory&) = delete;
  AttachedMemory& operator=(const AttachedMemory&) = delete;

  // Attaches memory; this is collective. `ops` is what the queue exchanges in a step, within that memory.
  void attach(const QueueComm& queue, std::span<std::byte> memory, std::span<const CommOp> ops, void* stream);
  // Connects for operations in memory that the communicator knows.
  static void connect(const QueueComm& queue, std::span<const CommOp> ops, void* stream);

 private:
  std::vector<QueueComm> attached_;
};

// Returns the first operation of each kind, type, size and peer, alike on all that take part in it.
std::vector<CommOp> distinct(std::span<const CommOp> ops);

// ------------------------------------------------------------------- communicators

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

// ------------------------------------------------------------------- rank devices
// Answers questions about the devices of a rank together, for an executor.

DeviceInfo info_of(DeviceInterface& device);

// Returns the device whose memory counters lie in: asynchronous queues write and await them; the others reach
// any host memory.
DeviceInterface& keeper_of_counters(const Devices& devices);

// Throws if the host cannot write a device's memory, as run.poison does.
void check_poison(const Devices& devices);

// Tells devices which of their queues wait for others': those that exchange wait for other ranks, and any may
// wait for another device's. `comms` is by queue.
void inform_devices(const Plan& plan, const Devices& devices, const std::vector<QueueComm>& comms);

}  // namespace prun
