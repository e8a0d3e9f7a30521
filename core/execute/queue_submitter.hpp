// Fills the queues of asynchronous devices, which only take work: one thread, the submitter, fills all of
// them in the order of the plan, which puts every call behind those it waits for. So it never waits for a
// ticket: it tells the queue to wait. It does wait for a save that is under way, which waits for no queue:
// the thread that reads the device's memory for the save needs its driver, which a queue that waits and is
// full would hold.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "execute/binding.hpp"
#include "execute/device_memory.hpp"
#include "execute/rank_queues.hpp"
#include "execute/ticket.hpp"
#include "plan/proof/events.hpp"

namespace prun {

// ------------------------------------------------------------------- queue submitter

// ------------------------------------------------------------ gates

// Holds the works of a call back in their queue until all of them are there: then the times that a device
// notes contain nothing of the host's time for the next launch.
//
// A device may not take all of a call while none of it runs: its queue has less room than it says, or a work
// waits for those before it as it is given. So a gate that stays closed is opened all the same: that call's
// times are less exact, and no queue waits for ever.
class Gates {
 public:
  // Makes one gate for each queue.
  Gates(DeviceInterface& device, std::size_t queues);

  struct Closed {
    const Counter* counter;
    std::uint64_t opens_at;  // counter value that the queue waits for
  };
  // The queue's submitter calls this, and opens the gate before closing it again.
  Closed close(std::size_t queue);
  void open(std::size_t queue);

 private:
  void watch(const std::stop_token& stop);

  Counters opened_;
  std::vector<Counter> closed_;  // how often each queue's gate was closed
  std::jthread watcher_;         // declared last, so that it ends first
};

class QueueSubmitter {
 public:
  // All of these must outlive the submitter. `gates` exist where watchers are told of each kernel.
  QueueSubmitter(RankQueues& queues, const Steps& steps, const Watchers& watchers,
                 std::optional<Gates>& gates, SaveGate* saves)
      : queues_(queues), steps_(steps), watchers_(watchers), gates_(gates), saves_(saves) {}

  // Starts the thread, if there is something to feed.
  void start();
  // Joins it, once no more steps come.
  void join();

 private:
  void run();
  void submit_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration);
  SubmittedCall submitted_of(const QueueRun& queue, const BoundCall& bound, std::int64_t iteration) const;
  static bool may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side);
  static Status start(QueueRun& queue, std::span<const CommOp> exchanges);
  Status submit_wait(QueueRun& queue, const BoundWait& waits, std::int64_t iteration) const;

  RankQueues& queues_;
  const Steps& steps_;
  const Watchers& watchers_;
  std::optional<Gates>& gates_;
  SaveGate* const saves_;
  std::vector<SubmittedPiece> script_;  // of the call that is fed
  std::thread thread_;
};

// ------------------------------------------------------------------- queue works
// Holds what queues are given of their calls: works of launches, events for waits, stamps for measuring. It
// owns what devices keep of them, and must outlive the queues, which may still hold work that needs it.

class QueueWorks {
 public:
  // `apart` says that each launch is a work, whatever watches.
  QueueWorks(const Watchers& watchers, bool apart) : watchers_(watchers), apart_(apart) {}

  // These are called in this order; the queues' calls are bound.
  void bind_waits(const RankQueues& queues);
  void bind_works(const RankQueues& queues);
  void bind_stamps(const RankQueues& queues);

 private:
  bool are_one(const QueueRun& queue, const BoundCall& first, const BoundCall& second, int side) const;
  void bind_works(QueueRun& queue, int side);
  const std::vector<BoundWork>& works_of(QueueRun& queue, const std::vector<const BoundPiece*>& pieces,
                                         bool one_by_one);
  void stamp_edges(const Plan& plan, QueueRun& queue);

  const Watchers& watchers_;
  const bool apart_;
  std::deque<std::vector<Launch>> launches_;  // launches of calls that became one
  std::deque<OwnedEvent> events_;
  std::deque<OwnedStamp> stamps_;
};

// ------------------------------------------------------------------- late probes
// Reports to probes on queues that run their work later. No thread of the host is present when it runs: the
// device notes times, which are reported once a step is done, and its tickets say how far a queue has come.

class LateProbes {
 public:
  // All of these must outlive the probes.
  LateProbes(const RankQueues& queues, const Steps& steps, const Watchers& watchers)
      : queues_(queues), steps_(steps), watchers_(watchers) {}

  // Sets the clocks; it is called before the first step, once stamps are bound.
  void set_clocks();
  // Reports progress, while steps run, to probes that are live.
  void report_progress();
  // Reports a step that is done to the other probes.
  void report_step(std::int64_t iteration) const;

 private:
  void report_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration) const;
  bool report_progress(QueueRun& queue) const;

  const RankQueues& queues_;
  const Steps& steps_;
  const Watchers& watchers_;
  std::map<const DeviceInterface*, double> clocks_;  // clock of probes at the moment when a device's is 0
};

}  // namespace prun
