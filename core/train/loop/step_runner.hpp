// Runs one plan of the training step: steps of so many microbatches.
#pragma once

#include <algorithm>

#include "execute/executor.hpp"
#include "train/loop/step_staging.hpp"

namespace prun {

class StepRunner {
 public:
  // The plan is that of the assembly's program, and both outlive it.
  StepRunner(const Assembly& assembly, const Plan& plan, ExecutorOptions options,
             std::vector<QueueComm> comms, std::vector<Probe*> probes)
      : plan_(plan),
        executor_(assembly.program(), plan, assembly.devices(), options, std::move(comms), std::move(probes)),
        staging_(assembly, executor_.memory(), plan.microbatches) {}

  const PlanMemory& memory() const { return executor_.memory(); }
  // Returns the number of steps that are started and not finished; the next function returns how many may be.
  std::int64_t running() const { return started_ - finished_; }
  std::int64_t may_run() const { return plan_.running; }
  // Returns where the samples of the next step go.
  std::vector<BatchTarget> batch() const { return staging_.batch(started_); }

  void start(const Progress& progress, const StagedBatch& batch, StepWishes wishes) {
    PRUN_CHECK(ended_ == 0, "a step would go on from others that end");
    staging_.stage(started_, progress, running(), batch, wishes);
    start_round();
    ++started_;
  }
  // Finishes the earliest step that runs; `progress` does not count it yet. Where steps overlap and too few
  // follow it, those that run end.
  StepResult finish(const Progress& progress) {
    const std::int64_t own = rounds_ - ended_ - running();  // its round among those of the row
    while (rounds_ <= own + executor_.depth()) {
      ++ended_;
      start_round();
    }
    const std::optional<double> exposed = executor_.finish_step();
    StepResult result = staging_.read(finished_, progress);
    result.exposed_communication = exposed;
    ++finished_;
    if (running() == 0) rounds_ = ended_ = 0;
    return result;
  }

 private:
  void start_round() {
    const auto before = static_cast<std::int32_t>(std::min<std::int64_t>(rounds_++, Round::many));
    executor_.start_step(plan_.overlaps ? Round{before, ended_} : Round::going_on);
  }

  const Plan& plan_;
  Executor executor_;
  StepStaging staging_;
  std::int64_t rounds_ = 0;  // rounds of the row that runs, and how many of them begin no step
  std::int32_t ended_ = 0;
  std::int64_t started_ = 0, finished_ = 0;  // steps of this runner, which alternate the staging sides
};

}  // namespace prun
