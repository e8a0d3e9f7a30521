// Runs the steps of a run, which may be of several kinds: there is a runner for each of its plans, and steps
// of one plan run at a time.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/executor.hpp"
#include "execute/loopback.hpp"
#include "execute/save_gate.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/membership.hpp"
#include "train/loop/step_staging.hpp"

namespace prun {

// ------------------------------------------------------------ queue comms

// Gives the queues of a rank's plans their communicators. A rank that runs without the others gets some that
// answer by themselves.
class QueueComms {
 public:
  // `communicators` is null for a rank without others.
  QueueComms(const Assembly& assembly, Communicators* communicators)
      : assembly_(assembly),
        communicators_(communicators),
        loopback_(assembly.plan(), assembly.mesh(), assembly.rank()) {}

  // Returns the communicators of the full step's plan, by queue.
  std::vector<QueueComm> of_full_step() {
    return communicators_ ? communicators_->queues() : loopback_.queues();
  }
  // Returns those of a plan that is over the full step's: it has no queue that the full one lacks.
  std::vector<QueueComm> of(const Plan& plan);

 private:
  const Assembly& assembly_;
  Communicators* communicators_;
  Loopback loopback_;
};

// ------------------------------------------------------------ step runner

// Runs one plan of the training step: steps of so many microbatches.
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

class StepRunners {
 public:
  // Opens the plan of the full batch.
  StepRunners(const Assembly& assembly, const Membership& membership, const Peers& peers, QueueComms& comms,
              SaveGate& gate);

  // Opens the other kinds' plans with the communicators of the full step, and in its memory. Devices that try
  // work overwrite that, so this comes before anything that lasts is written.
  void open_others(const Membership& membership, const Peers& peers, QueueComms& comms);

  const PlanMemory& memory() const { return full_.memory(); }
  // Returns the runner whose steps run, or would.
  StepRunner& now() { return *now_; }
  const StepRunner& now() const { return *now_; }
  // Makes the runner for this step that one, by its number, counted from 1, and its sequences. Returns false
  // while steps of another run.
  bool turn_to(std::int64_t number, std::int64_t global);

 private:
  StepRunner& runner_of(std::int64_t number, std::int64_t global);

  const Assembly& assembly_;
  const ExecutorOptions options_;
  const bool full_steps_;  // whether all steps are full ones
  StepRunner full_;
  std::map<StepKind, StepRunner> others_;
  StepRunner* now_ = &full_;
};

}  // namespace prun
