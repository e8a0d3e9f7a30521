// Records when the queues of a rank begin and end calls and waits, into memory that is allocated before.
#pragma once

#include "execute/executor.hpp"
#include "plan/proof/events.hpp"

namespace prun {

class Recorder final : public Probe {
 public:
  // Keeps the last `steps` steps of this plan.
  Recorder(const Plan& plan, std::int64_t steps);

  void begin_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept override;
  void end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept override;
  void begin_wait(std::int32_t queue, const Call& call, const Wait& wait, std::int64_t step,
                  double at) noexcept override;
  void end_wait(std::int32_t queue, const Call& call, const Wait& wait, std::int64_t step,
                double at) noexcept override;

  // Returns the events of all queues, each in its own order, in seconds of the probes' clock. It must be
  // called while no step runs.
  std::vector<Event> events() const;
  // Counts events that have given way to later ones.
  std::uint64_t lost() const;

 private:
  // One thread alone writes it, that of its queue.
  struct alignas(64) Ring {
    std::vector<Event> slots;
    std::uint64_t written = 0;
    double begin = 0;
  };

  void end(std::int32_t queue, const Call& call, std::int32_t waits_for, std::int64_t step,
           double at) noexcept;

  std::vector<Ring> rings_;
};

}  // namespace prun
