// Holds the queues of a rank as they run.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "execute/counters.hpp"
#include "execute/queue_run.hpp"

namespace prun {

class RankQueues {
 public:
  // The plan must outlive the queues.
  explicit RankQueues(const Plan& plan) : plan_(plan) {}

  // Creates the queues; it is called once, before anything else. `counters` and `comms` are by queue.
  void create(const Devices& devices, const Counters& counters, const std::vector<QueueComm>& comms);
  // Binds calls for both sides.
  void bind(Binding& binding);

  const Plan& plan() const { return plan_; }
  const Numbered<std::unique_ptr<QueueRun>>& all() const { return queues_; }
  QueueRun& operator[](std::int32_t queue) const { return *queues_[queue]; }
  // Returns the calls of asynchronous queues, in the order of the plan.
  const std::vector<std::pair<QueueRun*, const BoundCall*>>& fed() const { return fed_; }

  // Counts the tickets of all queues: the number grows for as long as any of them advances.
  std::uint64_t tickets_written() const;
  bool have_failed() const;
  // Notes a failure: threads that wait for what an asynchronous queue has not done go on, and nothing of this
  // step counts. When a device says that it has failed, its queue may be in an earlier step than its feeder,
  // or in a later one than the host.
  void fail(QueueRun& queue, const Status& status, std::int64_t step);

 private:
  const Plan& plan_;
  Numbered<std::unique_ptr<QueueRun>> queues_;
  std::vector<std::pair<QueueRun*, const BoundCall*>> fed_;
  std::mutex failing_;
};

}  // namespace prun
