// Runs the steps of a run whose batch may grow: there is a runner for each of its plans, and steps of one
// plan run at a time.
#pragma once

#include <map>

#include "execute/save_gate.hpp"
#include "train/loop/membership.hpp"
#include "train/loop/queue_comms.hpp"
#include "train/loop/step_runner.hpp"

namespace prun {

class StepRunners {
 public:
  // Opens the plan of the full batch.
  StepRunners(const Assembly& assembly, const Membership& membership, const Peers& peers, QueueComms& comms,
              SaveGate& gate);

  // Opens the plans of the ramp with the communicators of the full step, and in its memory. Devices that try
  // work overwrite that, so this comes before anything that lasts is written.
  void open_ramp(const Membership& membership, const Peers& peers, QueueComms& comms);

  const PlanMemory& memory() const { return full_.memory(); }
  // Returns the runner whose steps run, or would.
  StepRunner& now() { return *now_; }
  const StepRunner& now() const { return *now_; }
  // Makes the runner for steps of so many sequences that one. Returns false while steps of another run.
  bool turn_to(std::int64_t global);

 private:
  StepRunner& runner_of(std::int64_t global);

  const Assembly& assembly_;
  const ExecutorOptions options_;
  StepRunner full_;
  std::map<std::int64_t, StepRunner> fewer_;  // runners by their microbatches
  StepRunner* now_ = &full_;
};

}  // namespace prun
