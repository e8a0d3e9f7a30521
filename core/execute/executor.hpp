// Runs a plan on the devices of a rank. Everything is bound to addresses once, at construction; the loops
// wait, launch and signal, and neither allocate nor lock. Between two steps they sleep, where the next has
// not been started yet, on the word that says so.
//
// A queue that blocks (the CPU's kernels, exchanges that hold their caller) has a thread of its own, which
// goes through the queue's calls of a step. The queues of an asynchronous device only take work: one thread,
// the feeder, fills all of them in the order of the plan, which puts every call behind those it waits for. So
// it never waits for a ticket: it tells the queue to wait. Who waits for whom:
//
//   waits \ for     blocking                      asynchronous
//   blocking        the ticket, on its thread     the ticket, which the device writes, on its thread
//   asynchronous    the device, for the ticket    the device, for an event; another device, for the ticket
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "execute/counters.hpp"
#include "execute/device_memory.hpp"
#include "execute/gates.hpp"
#include "execute/poison.hpp"
#include "execute/probe.hpp"
#include "execute/queue_comm.hpp"
#include "execute/staging.hpp"
#include "execute/ticket.hpp"

namespace prun {

struct ExecutorOptions {
  // Fills bytes with NaN as soon as the plan says nobody reads them again, and looks after every kernel
  // whether it has left the plan's fences and those of the memory alone: for tests, and devices whose memory
  // the host can write.
  bool poison = false;
  std::int64_t rank = 0;
  // Steps from one whose exposed communication is measured to the next; 0: none is.
  std::int64_t measure_every = 0;
  // That of the plan which this one is over; the communicators know it. Null: it gets memory of its own.
  const PlanMemory* beneath = nullptr;
};

class Executor {
 public:
  // The program, plan, devices, communicators (by queue) and probes must outlive it.
  Executor(const Program& program, const Plan& plan, const Devices& devices, ExecutorOptions options,
           std::vector<QueueComm> comms = {}, std::vector<Probe*> probes = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Only while no step runs; staged values of a step as soon as the one two before it is done.
  const PlanMemory& memory() const { return memory_; }

  // Lets the queues run step 0, 1, 2, ... in turn. At most two may be started and not finished: they have the
  // two sides of what is staged.
  void start_step();
  // Holds the caller until the earliest step that is not finished is done; raises what went wrong in it. Its
  // exposed communication in seconds (sim/events.hpp), where that is measured and there is any communication.
  std::optional<double> finish_step();

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  struct QueueRun;
  struct BoundCall;
  // A wait as its queue carries it out: by an event, or by the other queue's ticket.
  struct BoundWait {
    const Wait* wait = nullptr;
    QueueRun* other = nullptr;
    const BoundCall* event_of = nullptr;
  };
  // By the side of the step.
  struct BoundSide {
    const BoundPiece* piece = nullptr;
    const std::vector<BoundWork>* works = nullptr;  // one of all launches, or of each
    bool is_done_later = false;                     // by a call behind it
    QueueEvent event = nullptr;                     // where an asynchronous queue waits for the call
    // Of an asynchronous queue: as note() takes them, and at the edges of what is exposed.
    std::vector<Stamp> stamps, edges;
  };
  struct BoundCall {
    const Call* call = nullptr;
    BoundSide sides[2];
    std::vector<BoundWait> waits;
    std::vector<bool> edges;  // as edges_of_exposure() says
    bool signals = false;     // somebody waits for its ticket

    BoundSide& side(std::int64_t step) { return sides[step % 2]; }
    const BoundSide& side(std::int64_t step) const { return sides[step % 2]; }
  };
  struct QueueRun {
    QueueRun(DeviceInterface& its_device, const QueueInfo& info, Counter& counter, bool is_asynchronous);
    ~QueueRun();
    QueueRun(const QueueRun&) = delete;
    QueueRun& operator=(const QueueRun&) = delete;

    DeviceInterface& device;
    const bool asynchronous;
    const std::string device_text;  // "device 'cuda: NVIDIA H200'"
    const std::int64_t depth;       // as DeviceInfo has it
    std::int32_t index = 0;
    Queue handle = nullptr;
    void* stream = nullptr;
    QueueComm comm;
    Staging* staging = nullptr;  // where the comm plugin needs it
    std::vector<BoundCall> calls;
    // By pieces, and whether each launch is a work.
    std::map<std::pair<std::vector<const BoundPiece*>, bool>, std::vector<BoundWork>> works;
    Ticket ticket;
    // What live probes have been told: calls that have ended, and whether the next one has begun.
    std::int64_t ended = 0;
    bool begun = false;
    double told = 0;                             // what timed probes have been told last of
    double exposed[2] = {};                      // of a blocking queue, by the side of the step
    Status status;                               // whoever sees that it has failed may read it
    std::atomic<std::int64_t> failed_in{never};  // a step; set once
    std::thread thread;                          // of a blocking queue

    bool failed_by(std::int64_t step) const { return failed_in.load() <= step; }
    bool has_failed() const { return failed_in.load() != never; }
  };
  // An event or a stamp.
  template <class Handle, auto create, auto destroy>
  class Owned {
   public:
    explicit Owned(DeviceInterface& device) : device_(device) { raise((device_.*create)(&handle_)); }
    ~Owned() { (device_.*destroy)(handle_); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    Handle handle() const { return handle_; }

   private:
    DeviceInterface& device_;
    Handle handle_ = nullptr;
  };
  using OwnedEvent = Owned<QueueEvent, &DeviceInterface::create_event, &DeviceInterface::destroy_event>;
  using OwnedStamp = Owned<Stamp, &DeviceInterface::create_stamp, &DeviceInterface::destroy_stamp>;

  static PlanMemory make_memory(const Program& program, const Plan& plan, const Devices& devices,
                                const ExecutorOptions& options);
  DeviceInterface& keeper_of_counters() const;
  void tell_devices(const std::vector<QueueComm>& comms);
  void make_queues(const std::vector<QueueComm>& comms);
  void sort_probes();
  void bind_calls();
  // Whether each launch of a step is a work, and probes are told of it.
  bool one_by_one(std::int64_t step) const { return each_kernel_ && step % 2 == 0; }
  bool are_one(const QueueRun& queue, const BoundCall& first, const BoundCall& second, int side) const;
  void bind_works(QueueRun& queue, int side);
  const std::vector<BoundWork>& bind_works(QueueRun& queue, const std::vector<const BoundPiece*>& pieces,
                                           bool one_by_one);
  void bind_waits();
  void bind_stamps();
  void attach_memory();
  void prepare_exchanges(QueueRun& queue);
  void attach_staging(QueueRun& queue, const std::vector<CommOp>& ops);
  void start_threads();

  // Holds the caller until the step may run; false: it will not.
  bool may_run(std::int64_t step);
  void run_queue(QueueRun& queue);
  void feed_queues();
  void run_call(QueueRun& queue, const BoundCall& bound, std::int64_t step);
  void feed_call(QueueRun& queue, const BoundCall& bound, std::int64_t step);
  bool may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side) const;
  Status feed_wait(QueueRun& queue, const BoundWait& waits, std::int64_t step);
  void await(QueueRun& queue, const BoundCall& bound, std::int64_t step);
  Status launch(QueueRun& queue, const Call& call, const BoundSide& side, std::int64_t step);
  Status exchange(QueueRun& queue, const BoundPiece& piece);
  Status exchange(QueueRun& queue, const CommOp& op);

  // Those that blocking queues tell as they go.
  template <class Tell>
  void tell(Tell&& tell) const {
    if (probes_.empty()) return;
    const double at = probe_clock();
    for (Probe* probe : probes_) tell(*probe, at);
  }
  // Of asynchronous queues: executor_probes.cpp.
  void set_clocks();
  double clock_of(QueueRun& queue);
  std::size_t parts_of(const BoundPiece& piece) const;
  // each(span of operations) for those that an asynchronous queue starts together.
  template <class Each>
  void for_exchanges(const BoundPiece& piece, Each each) const {
    if (parts_of(piece) == 1) return each(std::span(piece.exchanges));
    for (std::size_t part = 0; part < parts_of(piece); ++part) each(piece.exchange(part));
  }
  void tell_step(std::int64_t step);
  void tell_call(QueueRun& queue, const BoundCall& bound, std::int64_t step);
  void tell_progress();
  bool tell_progress(QueueRun& queue);
  bool has_failed() const;
  bool may_begin(const BoundCall& bound, std::int64_t step) const;
  bool is_measured(std::int64_t step) const;
  std::optional<double> exposed_communication(std::int64_t step);

  std::uint64_t ticket(std::int32_t queue, std::int64_t step, std::int32_t position) const;
  std::uint64_t tickets_written() const;
  void await_step(QueueRun& queue, std::int64_t step);
  bool is_done(const QueueRun& queue, std::int64_t step) const;
  void fail(QueueRun& queue, const Status& status, std::int64_t step);
  void stop();

  const Plan& plan_;
  Devices devices_;
  ExecutorOptions options_;
  std::vector<Probe*> probes_;
  std::vector<Probe*> live_, timed_;  // those of asynchronous queues
  bool each_kernel_ = false;
  std::map<const DeviceInterface*, double> clocks_;  // of probes, where a device's is 0
  PlanMemory memory_;
  Binding binding_;
  std::deque<std::vector<Launch>> launches_;  // of calls that became one
  std::optional<Poison> poison_;
  Counters counters_;  // by queue
  std::optional<Gates> gates_;
  std::deque<Staging> stagings_;
  AttachedMemory attached_;
  // Outlive the queues, which may still hold work that needs them.
  std::deque<OwnedEvent> events_;
  std::deque<OwnedStamp> stamps_;
  std::vector<std::unique_ptr<QueueRun>> queues_;
  std::vector<std::pair<QueueRun*, const BoundCall*>> fed_;  // the feeder's calls, in the order of the plan
  std::thread feeder_;
  std::mutex failing_;
  // Steps the queues may run; its complement: and no more will come.
  std::atomic<std::int64_t> started_{0};
  std::int64_t steps_ = 0, finished_ = 0;
};

}  // namespace prun
