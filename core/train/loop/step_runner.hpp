// One plan of the training step, run: steps of so many microbatches.
#pragma once

#include "execute/executor.hpp"
#include "train/loop/step_staging.hpp"

namespace prun {

class StepRunner {
 public:
  // The plan is of the assembly's program, and both outlive it.
  StepRunner(const Assembly& assembly, const Plan& plan, ExecutorOptions options,
             std::vector<QueueComm> comms, std::vector<Probe*> probes)
      : overlaps_(plan.overlaps),
        executor_(assembly.program(), plan, assembly.devices(), options, std::move(comms), std::move(probes)),
        staging_(assembly, executor_.memory(), plan.microbatches) {}

  const PlanMemory& memory() const { return executor_.memory(); }
  // Steps that are started and not finished: two at most.
  std::int64_t running() const { return started_ - finished_; }
  // Where the samples of the next step go.
  std::vector<BatchTarget> batch() const { return staging_.batch(started_); }

  void start(const Progress& progress, const StagedBatch& batch, StepWishes wishes) {
    staging_.stage(started_, progress, running(), batch, wishes);
    executor_.start_step(overlaps_ && running() == 0 ? Round::beginning : Round::going_on);
    ++started_;
  }
  // The earliest step that runs, once it is done; `progress` does not count it yet. Where steps overlap and
  // none follows it, it ends alone.
  StepResult finish(const Progress& progress) {
    if (overlaps_ && running() == 1) executor_.start_step(Round::ending);
    const std::optional<double> exposed = executor_.finish_step();
    StepResult result = staging_.read(finished_, progress);
    result.exposed_communication = exposed;
    ++finished_;
    return result;
  }

 private:
  const bool overlaps_;
  Executor executor_;
  StepStaging staging_;
  std::int64_t started_ = 0, finished_ = 0;  // steps of its own, which alternate the staging sides
};

}  // namespace prun
