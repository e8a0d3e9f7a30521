// Who is told what the queues of a rank do.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Told what a queue does, by the thread that feeds it: must neither allocate nor lock.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual void begin_call(std::int32_t queue, const Call& call, std::int64_t step) noexcept = 0;
  virtual void end_call(std::int32_t queue, const Call& call, std::int64_t step) noexcept = 0;
  // Around each of the call's waits, before begin_call.
  virtual void begin_wait(std::int32_t, const Call&, const Wait&, std::int64_t) noexcept {}
  virtual void end_wait(std::int32_t, const Call&, const Wait&, std::int64_t) noexcept {}
  // Whether kernels are launched one by one, with end_kernel after each; `index` counts within the call.
  virtual bool each_kernel() const noexcept { return false; }
  virtual void end_kernel(std::int32_t, const Call&, std::size_t /*index*/) noexcept {}
  // Within a call that communicates: whether its operations have been started and now wait for the others.
  virtual void waits(std::int32_t, bool /*waiting*/) noexcept {}
};

}  // namespace prun
