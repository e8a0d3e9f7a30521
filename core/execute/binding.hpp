// Binds a plan's calls to memory: what is launched or exchanged, ready to be passed on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "execute/plan_memory.hpp"
#include "plan/bound_calls.hpp"
#include "plan/plan.hpp"
#include "prun/comm.hpp"

namespace prun {

// ------------------------------------------------------------------- binding

// Holds what a call launches or, on a queue that communicates, exchanges.
struct BoundPiece {
  std::vector<Launch> launches;
  // Holds the operations of the plan's exchanges one after the other; those of exchange i end at ends[i].
  std::vector<CommOp> exchanges;
  std::vector<std::size_t> ends;
  // These hold, by launch or exchange and where requested, bytes that are not read again, and the plan's
  // fences around what the kernel gets.
  std::vector<std::vector<std::span<std::byte>>> dead, fences;

  std::span<const CommOp> exchange(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(exchanges).subspan(begin, ends[i] - begin);
  }
};

class Binding {
 public:
  // All of these must outlive the binding. `poison` says whether to list what is dead and fenced.
  Binding(const Program& program, const Plan& plan, const PlanMemory& memory, std::int64_t rank, bool poison)
      : program_(program), plan_(plan), memory_(memory), rank_(rank), poison_(poison) {}

  // Binds a call; calls that differ in nothing share one piece. It lives as long as the binding.
  const BoundPiece& bind(const Call& call, int side);

 private:
  Launch bind_step(const Call& call, const PlannedStep& step, std::uint32_t first, int side);
  void pass_update_settings(KernelArgs& args, const Op& op);
  void bind_exchange(const Call& call, const PlannedStep& step, int side, BoundPiece& piece) const;
  std::span<std::byte> bytes_at(const Call& call, const Address& address, int side) const;

  const Program& program_;
  const Plan& plan_;
  const PlanMemory& memory_;
  std::int64_t rank_;
  bool poison_;
  std::map<BoundKey, std::unique_ptr<BoundPiece>> bound_;
  // These belong to launches, at stable addresses.
  std::deque<std::vector<Tensor>> tensors_;
  std::deque<std::vector<TensorElements>> updates_;
};

// ------------------------------------------------------------------- steps
// Says which steps the queues of a rank may run. Between two steps a thread that runs queues sleeps, if the
// next has not been started yet, on the word that says so.

// Numbers the iterations that queues run: each is a step's, or ends steps that overlap.
class Steps {
 public:
  struct Run {
    Iteration iteration;
    std::int64_t step = 0;  // step whose calls it has, or the next one if it ends steps

    // Says whether the step begins in this iteration, in which it is measured.
    bool begins_step() const { return iteration.ended == 0; }
  };

  // At most so many steps may be started and not finished.
  explicit Steps(std::int64_t running) : running_(running), runs_(static_cast<std::size_t>(4 * running)) {}

  // Starts an iteration; the thread that holds the executor calls it.
  void start(Iteration iteration);
  // Finishes the earliest step that is not finished, and returns its iteration.
  std::int64_t finish();
  // Says that no more steps will come.
  void end();
  std::int64_t started() const { return iterations_; }

  // Blocks a thread that runs queues until the iteration may run; returns false if it never will.
  bool may_run(std::int64_t iteration) const;
  // Returns an iteration, which must be one that may run, or that ran not long ago.
  const Run& run(std::int64_t iteration) const {
    return runs_[static_cast<std::size_t>(iteration) % runs_.size()];
  }

 private:
  // This counts the iterations that queues may run; its complement means in addition that no more will come.
  std::atomic<std::int64_t> may_run_{0};
  const std::int64_t running_;
  std::vector<Run> runs_;
  std::int64_t iterations_ = 0, looked_at_ = 0;  // iterations started; iterations that are finished
  std::int64_t steps_ = 0, finished_ = 0;
};

// ------------------------------------------------------------------- probe
// A probe observes what the queues of a rank do.

// Is told what a queue does, in the queue's order, and when: `at` is in seconds of a clock that all queues of
// all ranks of this machine share.
//
// A queue that blocks tells it as it goes, on its own thread: nothing here may allocate or lock. For a queue
// that runs its work later, the thread that waits for the step tells it: once the step is done, with times
// that the device has noted, or, for probes that are `live`, as far as the queue is seen to have come.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual bool live() const noexcept { return false; }
  virtual void begin_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept = 0;
  virtual void end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept = 0;
  // These two frame each of the call's waits, before begin_call.
  virtual void begin_wait(std::int32_t, const Call&, const Wait&, std::int64_t, double) noexcept {}
  virtual void end_wait(std::int32_t, const Call&, const Wait&, std::int64_t, double) noexcept {}
  // Says whether exchanges are launched one by one and, in steps of even number, kernels too, with end_kernel
  // after each; `index` counts within the call. Steps of odd number run as they do unwatched: if a device
  // takes several calls as one, the last takes all the time.
  virtual bool each_kernel() const noexcept { return false; }
  virtual void end_kernel(std::int32_t, const Call&, std::size_t /*index*/, double) noexcept {}
  // Says, within a call that communicates, whether its operations have been started and now wait for the
  // others.
  virtual void waits(std::int32_t, bool /*waiting*/, double) noexcept {}
};

// Reads the clock whose times probes get.
inline double probe_clock() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ------------------------------------------------------------------- watchers
// Holds the probes that watch what an executor's queues do, and says in which steps how closely they watch.

class Watchers {
 public:
  // `measure_every` is that of ExecutorOptions. The probes must outlive it.
  Watchers(std::vector<Probe*> probes, std::int64_t measure_every)
      : probes_(std::move(probes)), measure_every_(measure_every) {
    for (Probe* probe : probes_) {
      each_kernel_ |= probe->each_kernel();
      (probe->live() ? live_ : timed_).push_back(probe);
    }
  }

  // Returns the probes that get the progress of queues that run their work later; others get times once a
  // step is done.
  const std::vector<Probe*>& live() const { return live_; }
  const std::vector<Probe*>& timed() const { return timed_; }
  bool each_kernel() const { return each_kernel_; }
  // Says whether each launch of a step is a work, and is reported to probes.
  bool one_by_one(std::int64_t step) const { return each_kernel_ && step % 2 == 0; }

  // Says whether exposed communication is measured in any step; the next function says so of one step.
  bool measures() const { return measure_every_ > 0; }
  bool is_measured(std::int64_t step) const { return measures() && (step + 1) % measure_every_ == 0; }
  // Says whether a queue notes its waits in a step: one that communicates also in the step before one that is
  // measured.
  bool notes_waits(const QueueInfo& queue, std::int64_t step) const {
    return is_measured(step) || (queue.communicates() && is_measured(step + 1));
  }

  // Returns into how many parts a piece's exchanges are enqueued: one part, unless each exchange is to be
  // timed.
  std::size_t parts_of(const BoundPiece& piece) const {
    return each_kernel_ ? piece.ends.size() : !piece.ends.empty();
  }
  // Calls each(span of operations) for those that an asynchronous queue starts together.
  template <class Each>
  void for_exchanges(const BoundPiece& piece, Each each) const {
    if (parts_of(piece) == 1) return each(std::span(piece.exchanges));
    for (std::size_t part = 0; part < parts_of(piece); ++part) each(piece.exchange(part));
  }

  // Has blocking queues report to all probes as they go.
  template <class Tell>
  void tell(Tell&& tell_one) const {
    if (probes_.empty()) return;
    const double at = probe_clock();
    for (Probe* probe : probes_) tell_one(*probe, at);
  }

 private:
  std::vector<Probe*> probes_, live_, timed_;
  bool each_kernel_ = false;
  std::int64_t measure_every_;
};

}  // namespace prun
