// Runs a plan on the devices of a rank. Everything is bound to addresses once, at construction; the loops
// wait, launch and signal, and neither allocate nor lock.
//
// Queues that block have a thread each (blocking_queues.hpp); those of an asynchronous device are filled by
// one thread for all of them (queue_submitter.hpp). Who waits for whom:
//
//   waits \ for     blocking                      asynchronous
//   blocking        the ticket, on its thread     the ticket, which the device writes, on its thread
//   asynchronous    the device, for the ticket    the device, for an event; another device, for the ticket
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "execute/binding.hpp"
#include "execute/blocking_queues.hpp"
#include "execute/queue_submitter.hpp"
#include "execute/rank_queues.hpp"

namespace prun {

// ------------------------------------------------------------------- executor

// ------------------------------------------------------------ exchange memory

// Gives the comm plugins of a rank's queues its memory, and what they need of their own.
class ExchangeMemory {
 public:
  // Attaches the memory; this is collective and comes before the first step, like all that may block the
  // device. `known` says that the communicators know the memory already.
  void attach(const RankQueues& queues, const PlanMemory& memory, bool known, const Watchers& watchers);

 private:
  void attach_staging(QueueRun& queue, const std::vector<CommOp>& ops);

  std::deque<Staging> stagings_;
  AttachedMemory attached_;
};

// ------------------------------------------------------------ exposed times

// Sums the exposed communication of real steps (plan/proof/events.hpp) from what queues note of their waits.
class ExposedTimes {
 public:
  // Both must outlive it.
  ExposedTimes(const RankQueues& queues, const Watchers& watchers)
      : queues_(queues), watchers_(watchers), before_(queues.plan().queues.size()) {}

  // Returns the seconds of a step that is measured and done; of another it returns 0, and takes what
  // communication waited for there: a step's first exchanges may be waited for in the next one. It is called
  // for each step in turn.
  double take(std::int64_t step);

 private:
  std::vector<HeldUp> take_waits(QueueRun& queue, std::int64_t step) const;

  const RankQueues& queues_;
  const Watchers& watchers_;
  Numbered<std::vector<HeldUp>> before_;  // of the step before, by queue
};

struct ExecutorOptions {
  // If set, bytes are filled with NaN as soon as the plan says that they are not read again, and after every
  // kernel the plan's fences and those of the memory are checked: this is for tests, and for devices whose
  // memory the host can write.
  bool poison = false;
  std::int64_t rank = 0;
  // The exposed communication of every step of this number is measured; 0: of none.
  std::int64_t measure_every = 0;
  // This is the memory of the plan that this one is made over; the communicators know it. Null: the plan gets
  // memory of its own.
  const PlanMemory* base_program = nullptr;
  // Calls that wait for reads of a save wait here. Null: no save goes on beside steps.
  SaveGate* saves = nullptr;
};

class Executor {
 public:
  // The program, plan, devices, communicators (by queue) and probes must outlive it.
  Executor(const Program& program, const Plan& plan, const Devices& devices, ExecutorOptions options,
           std::vector<QueueComm> comms = {}, std::vector<Probe*> probes = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the memory. It may be used only while no step runs, except for reading what calls wait to
  // overwrite (SaveGate); staged values of a step as soon as the one two before it is done.
  const PlanMemory& memory() const { return memory_; }

  // Lets the queues run step 0, 1, 2, ... in turn. At most Plan::staging_copies steps may be started and not
  // finished: that many have staged values. `iteration` says where it stands in a row of steps that overlap,
  // or of a text. Where steps overlap, depth() iterations behind a step's own, in which others are started or
  // none, must be started before it is finished.
  void start_step(Iteration iteration = Iteration::going_on);
  std::int32_t depth() const { return depth_; }
  // Blocks the caller until the earliest step that is not finished is done; raises what went wrong in it.
  // Returns its exposed communication in seconds (sim/events.hpp), if that is measured and there is any
  // communication.
  std::optional<double> finish_step();

 private:
  static PlanMemory make_memory(const Program& program, const Plan& plan, const Devices& devices,
                                const ExecutorOptions& options);
  void bind();
  void start_threads();
  void await(QueueRun& queue, std::uint64_t last, std::int64_t iteration);
  std::optional<double> exposed_communication(std::int64_t step);
  void stop();

  const Plan& plan_;
  const std::int32_t depth_;  // depth of the plan
  const ExecutorOptions options_;
  const Watchers watchers_;
  PlanMemory memory_;
  Binding binding_;
  std::optional<Poison> poison_;
  Counters counters_;  // counters by queue
  std::optional<Gates> gates_;
  ExchangeMemory exchange_memory_;
  QueueWorks works_;
  // The members above outlive the queues.
  RankQueues queues_;
  Steps steps_;
  LateProbes late_probes_;
  ExposedTimes exposed_times_;
  BlockingQueues blocking_;
  QueueSubmitter submitter_;
};

// ------------------------------------------------------------------- loopback
// Gives communicators to a rank that runs without the others, for measuring: each exchange leaves numbers of
// the right size behind. A gather repeats the rank's own part, a sum is what it gave itself, and what only
// another rank could send are small numbers of no meaning.

class Loopback final : public CommInterface {
 public:
  // Makes one communicator for each queue of the plan that communicates.
  Loopback(const Plan& plan, const Mesh& mesh, std::int64_t rank);

  std::vector<QueueComm> queues();

  Status info(CommInfo* info) noexcept override;
  Status create(const CommGroup& group, Communicator* communicator) noexcept override;
  Status destroy(Communicator communicator) noexcept override;
  Status attach_memory(Communicator communicator, void* base, std::int64_t bytes) noexcept override;
  Status detach_memory(Communicator communicator) noexcept override;
  Status connect(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override;
  Status prepare(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override;
  Status start(Communicator communicator, const CommOp* ops, std::int64_t count,
               void* stream) noexcept override;
  Status finish(Communicator communicator) noexcept override;
  Status abort(Communicator communicator) noexcept override;
  Status counters(Communicator communicator, CommCounters* counters) noexcept override;
  Status check(Communicator communicator) noexcept override;
  Status needs(const CommOp& op, std::int32_t rank, std::int32_t size, CommNeeds* needs) noexcept override;
  Status examine(Text*) noexcept override { return {}; }

 private:
  std::vector<std::int64_t> members_;  // members by queue; a communicator points to its number
};

}  // namespace prun
