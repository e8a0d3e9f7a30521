// Holds the queues of a rank as they run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "execute/binding.hpp"
#include "execute/communicators.hpp"
#include "execute/device_memory.hpp"
#include "execute/ticket.hpp"
#include "plan/exchange_needs.hpp"
#include "plan/proof/events.hpp"
#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- staging
// Exchanges memory that only a device reaches by a comm plugin that moves the host's, through pinned memory.
// A chunk of a large exchange travels while a thread copies the next one there and the previous one back.

class Staging {
 public:
  // Stages the operations of a queue, which has one under way at a time. The device must outlive it.
  Staging(DeviceInterface& device, std::string_view queue, std::span<const CommOp> ops, std::int64_t members);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Returns the pinned memory; the next function returns the operations that are done there.
  std::span<std::byte> memory() const { return memory_.bytes(); }
  std::vector<CommOp> operations(std::span<const CommOp> ops) const;

  // Carries one of them out: wire(operation in the pinned memory) does each chunk.
  template <class Wire>
  Status exchange(const CommOp& op, Wire&& wire) {
    const StagedChunks chunks(op, members_);
    if (chunks.count() == 1) {
      Status status = bring(chunks, 0);
      if (status.ok()) status = wire(chunks.at(0, slot(0)));
      return status.ok() ? take(chunks, 0) : status;
    }
    begin(chunks);
    Status status;
    for (std::int64_t i = 0; i < chunks.count() && may_travel(i); ++i) {
      status = wire(chunks.at(i, slot(i)));
      has_travelled(i, status);
      if (!status.ok()) break;
    }
    const Status copied = end();
    return status.ok() ? copied : status;
  }

 private:
  std::byte* slot(std::int64_t chunk) const { return memory_.data() + chunk % slots_.count * slots_.bytes; }
  // Copies what a chunk reads into its slot; the next function copies back what it wrote.
  Status bring(const StagedChunks& chunks, std::int64_t chunk) const;
  Status take(const StagedChunks& chunks, std::int64_t chunk) const;

  // The thread that calls exchange() runs these, for chunks of one operation after the other.
  void begin(const StagedChunks& chunks);
  bool may_travel(std::int64_t chunk);
  void has_travelled(std::int64_t chunk, const Status& status);
  Status end();
  // The copying thread runs these.
  void copy_all();
  void copy(const StagedChunks& chunks);

  DeviceInterface& device_;
  const std::int64_t members_;
  const StagingSlots slots_;
  Pinned memory_;

  // Holds tickets of operations, and of chunks of all of them.
  struct Progress {
    Counter counter{0};
    Ticket ticket{counter, false};
  };
  Progress asked_, brought_, travelled_, done_;
  std::uint64_t operations_ = 0, chunks_before_ = 0;
  const StagedChunks* chunks_ = nullptr;  // chunks of the operation under way
  std::atomic<bool> given_up_ = false;    // set if it, or all of them, gave up: nothing more is copied
  Status status_;                         // status of the copies
  std::thread copier_;                    // runs if there are chunks
};

// ------------------------------------------------------------------- counters
// Holds counters that a device reaches, each on a cache line of its own.

class Counters {
 public:
  Counters(DeviceInterface& device, std::size_t count)
      : memory_(device, static_cast<std::int64_t>(count) * cache_line) {
    for (std::size_t i = 0; i < count; ++i) new (&(*this)[i]) Counter(0);
  }
  Counter& operator[](std::size_t i) const {
    return *reinterpret_cast<Counter*>(memory_.data() + i * cache_line);
  }

 private:
  static constexpr std::int64_t cache_line = 64;
  Pinned memory_;
};

// ------------------------------------------------------------------- rank queues

// ------------------------------------------------------------ queue run

// Holds a queue of a plan as it runs: its calls, bound to memory and to a device, and how far it has come.
struct QueueRun;
struct BoundCall;

// Holds a wait as its queue carries it out: by an event, or by the other queue's ticket.
struct BoundWait {
  const Wait* wait = nullptr;
  QueueRun* other = nullptr;
  const BoundCall* event_of = nullptr;
};

// Holds what differs by the side of the step.
struct BoundSide {
  const BoundPiece* piece = nullptr;
  const std::vector<BoundWork>* works = nullptr;  // one work of all launches, or one of each
  bool is_done_later = false;                     // a call behind this one does its work
  QueueEvent event = nullptr;                     // event, if an asynchronous queue waits for the call
  // An asynchronous queue notes these: as QueueSubmitter needs them, and at the edges of waits that are
  // counted.
  std::vector<Stamp> stamps, edges;
};

struct BoundCall {
  const Call* call = nullptr;
  std::vector<BoundSide> sides;
  std::vector<BoundWait> waits;
  const QueueRun* known = nullptr;  // queue of Call::unless, if that is set
  bool signals = false;             // whether another thread or queue waits for its ticket

  BoundSide& side(std::int64_t step) { return sides[static_cast<std::size_t>(step) % sides.size()]; }
  const BoundSide& side(std::int64_t step) const {
    return sides[static_cast<std::size_t>(step) % sides.size()];
  }
};

struct QueueRun {
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  QueueRun(DeviceInterface& its_device, const QueueInfo& queue, Counter& counter, bool is_asynchronous);
  ~QueueRun();
  QueueRun(const QueueRun&) = delete;
  QueueRun& operator=(const QueueRun&) = delete;

  const QueueInfo& info;
  DeviceInterface& device;
  const bool asynchronous;
  const std::string device_text;  // text such as "device 'cuda: NVIDIA H200'"
  const std::int64_t depth;       // queue_depth of DeviceInfo
  std::int32_t index = 0;
  Queue handle = nullptr;
  void* stream = nullptr;
  QueueComm comm;
  Staging* staging = nullptr;  // set if the comm plugin needs it
  Numbered<BoundCall> calls;
  // These give the last call of a step, if that comes so many iterations after its own; position -1: it does
  // not.
  std::int32_t last_behind = -1, iterations_behind = 0;
  // Works are kept by pieces, and by whether each launch is a work.
  std::map<std::pair<std::vector<const BoundPiece*>, bool>, std::vector<BoundWork>> works;
  Ticket ticket;
  // This is what live probes have been told: calls that have ended, and whether the next one has begun.
  std::int64_t ended = 0;
  bool begun = false;
  double told = 0;                             // last time told to timed probes
  std::vector<std::vector<HeldUp>> held_up;    // counted waits of a blocking queue, by the side of the step
  Status status;                               // readable by every thread that sees that the queue has failed
  std::atomic<std::int64_t> failed_in{never};  // number of a step; set once

  std::vector<HeldUp>& held_up_in(std::int64_t step) {
    return held_up[static_cast<std::size_t>(step) % held_up.size()];
  }
  bool failed_by(std::int64_t step) const { return failed_in.load() <= step; }
  bool has_failed() const { return failed_in.load() != never; }

  std::uint64_t ticket_of(std::int64_t step, std::int32_t position) const {
    return static_cast<std::uint64_t>(step * info.calls + position + 1);
  }
  // Returns the last ticket of an iteration, which its last call hands out; the queue has calls.
  std::uint64_t last_ticket(std::int64_t iteration) const {
    return ticket_of(iteration, calls.back().call->position);
  }
  // Returns the last ticket of the step that an iteration is of, which may end in a later iteration.
  std::uint64_t last_ticket_of_step(std::int64_t iteration) const {
    return last_behind >= 0 ? ticket_of(iteration + iterations_behind, last_behind) : last_ticket(iteration);
  }
  // Says whether the step is done, also if no thread waits for its tickets any more.
  bool is_done(std::int64_t step) const {
    return calls.empty() || ticket.counter().load() >= last_ticket_of_step(step);
  }
};

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
  const std::vector<std::pair<QueueRun*, const BoundCall*>>& submitted() const { return submitted_; }

  // Counts the tickets of all queues: the number grows for as long as any of them advances.
  std::uint64_t tickets_written() const;
  bool have_failed() const;
  // Notes a failure: threads that wait for what an asynchronous queue has not done go on, and nothing of this
  // step counts. When a device says that it has failed, its queue may be in an earlier step than its
  // submitter, or in a later one than the host.
  void fail(QueueRun& queue, const Status& status, std::int64_t step);

 private:
  const Plan& plan_;
  Numbered<std::unique_ptr<QueueRun>> queues_;
  std::vector<std::pair<QueueRun*, const BoundCall*>> submitted_;
  std::mutex failing_;
};

}  // namespace prun
