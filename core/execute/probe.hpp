// A probe observes what the queues of a rank do.
#pragma once

#include <chrono>

#include "plan/plan.hpp"

namespace prun {

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

}  // namespace prun
