// Holds the probes that watch what an executor's queues do, and says in which steps how closely they watch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "execute/binding.hpp"
#include "execute/probe.hpp"

namespace prun {

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
