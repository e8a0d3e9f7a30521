// Runs one rank's training, step by step: it reads batches, returns results, restores and saves everything.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/executor.hpp"
#include "execute/ticket.hpp"
#include "prun/observer.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/checkpoint/run_saves.hpp"
#include "train/loop/agreement.hpp"
#include "train/loop/replicas.hpp"
#include "train/loop/samples.hpp"
#include "train/loop/step_staging.hpp"
#include "train/loop/validation.hpp"

namespace prun {

// ------------------------------------------------------------------- step runners
// Runs the steps of a run, which may be of several kinds: there is a runner for each of its plans, and steps
// of one plan run at a time.

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

  void start(const Progress& progress, const StagedBatch& batch, StepRequests requests) {
    PRUN_CHECK(ended_ == 0, "a step would go on from others that end");
    staging_.stage(started_, progress, running(), batch, requests);
    start_iteration();
    ++started_;
  }
  // Finishes the earliest step that runs; `progress` does not count it yet. Where steps overlap and too few
  // follow it, those that run end.
  StepResult finish(const Progress& progress) {
    const std::int64_t own = iterations_ - ended_ - running();  // its iteration among those of the row
    while (iterations_ <= own + executor_.depth()) {
      ++ended_;
      start_iteration();
    }
    const std::optional<double> exposed = executor_.finish_step();
    StepResult result = staging_.read(finished_, progress);
    result.exposed_communication = exposed;
    ++finished_;
    if (running() == 0) iterations_ = ended_ = 0;
    return result;
  }

 private:
  void start_iteration() {
    const auto before = static_cast<std::int32_t>(std::min<std::int64_t>(iterations_++, Iteration::many));
    executor_.start_step(plan_.overlaps ? Iteration{before, ended_} : Iteration::going_on);
  }

  const Plan& plan_;
  Executor executor_;
  StepStaging staging_;
  std::int64_t iterations_ = 0;  // iterations of the row that runs, and how many of them begin no step
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

// ------------------------------------------------------------------- trainer

// ------------------------------------------------------------ rank memory

// Reports the memory that ranks have used, beside what was planned.

// Returns, collectively, every rank's memory up to now. `exchange` may be empty for one rank alone.
std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange);

// Runs one run, step by step. It is deterministic: recipe and data fix every bit.
class Trainer {
 public:
  Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership = {});

  // Lets the next step run, whose batch has been read meanwhile; every rank calls this in the same order.
  // `stop` and `save` say that this rank was asked to; only the first may be asked to save. The step may be
  // started while the one before it still runs, whose outcome it respects: it goes on from the updates there
  // have been then, and if that is to stop the run, changes nothing.
  void start(bool stop = false, bool save = false);
  // Says whether the step may be started now: one whose batch has grown only when nothing runs.
  bool can_start() const { return is_read_; }
  // Finishes the earliest step that runs.
  StepResult finish();
  // Returns the number of steps that are started and not finished: two at most or, where they overlap, as
  // many as are at work.
  std::int64_t running() const { return runners_.now().running(); }
  // Returns the sequences of the next step to finish.
  std::int64_t global() const { return ramp_.global_at(progress_.samples); }
  const BatchRamp& ramp() const { return ramp_; }
  // Runs one step by itself.
  StepResult step(bool stop = false) {
    start(stop);
    return finish();
  }
  // Runs many steps, each started while the one before it runs; calls body(result) for each.
  template <class Body>
  void run(std::int64_t steps, Body&& body) {
    const std::int64_t end = progress_.step + steps;
    while (progress_.step < end) {
      while (can_start() && progress_.step + running() < end) start();
      body(finish());
    }
  }
  // Returns the progress of the steps that are finished.
  const Progress& progress() const { return progress_; }
  const Assembly& assembly() const { return assembly_; }
  const PlanMemory& memory() const { return runners_.memory(); }
  // Returns the gate for code that reads what lasts beside steps, in the order of the plan's reads; no save
  // runs meanwhile.
  SaveGate& save_gate() { return gate_; }
  const std::filesystem::path& folder() const { return saves_->folder(); }
  Communicators* communicators() { return peers_.communicators(); }
  // Makes the run's folder its own; throws if it is another's. The first rank does so, before anything is
  // written there.
  void claim_folder() { saves_->claim_folder(progress_.step); }
  // Returns notes on the checkpoint that the run goes on from, or on the weights that it starts from, if it
  // does; each damaged one has a note of its own.
  std::vector<std::string> resume_notes() const { return start_->notes(saves_->plugins()); }
  std::vector<std::string> resume_warnings() const { return start_->warnings(); }
  // Allocates the memory that saves take: every run may be stopped, and saves then. Every rank calls the
  // others. The first lets a checkpoint be written beside the steps to come, while none runs; the second
  // waits until it is in place. The third finds before the first step what would stop them.
  void make_room_for_saves() { saves_->make_room(); }
  void begin_save();
  void finish_save() { saves_->finish(); }
  void try_save() { saves_->try_out(); }
  // Returns, on the first rank, what was put in place since the last call. Throws what went wrong.
  std::optional<std::filesystem::path> saved() { return saves_->saved(); }
  // Saves a checkpoint, and waits until it is in place.
  std::filesystem::path save();
  // Compares, if the recipe says so, ranks that should hold the same; throws diverged if they do not. No step
  // runs meanwhile. Every rank calls it.
  void compare_replicas();
  // Returns the loss on data that is not trained on, if the recipe evaluates; no step runs meanwhile and, if
  // anything stands for weights, no save either. Every rank calls it.
  Evaluation evaluate();
  bool evaluation_moves_weights() const { return validation_ && validation_->moves_weights(); }
  // Returns the memory of every rank, up to now. Every rank calls it.
  std::vector<RankMemory> memory_of_ranks() const {
    return prun::memory_of_ranks(assembly_, membership_.exchange);
  }

 private:
  // These are steps of the start, in this order, after the members are made.
  void open_evaluation(PluginHost& plugins);
  void watch_replicas();
  void fill_memory(PluginHost& plugins);
  void read_ahead();

  std::int64_t samples_taken() const;
  void say_step() const;

  const Assembly& assembly_;
  const Membership membership_;
  const Peers peers_;
  QueueComms comms_;
  SaveGate gate_;
  const BatchRamp ramp_;
  StepRunners runners_;
  Samples samples_;
  BatchReader reader_;
  std::optional<Validation> validation_;
  std::optional<Replicas> replicas_;
  std::optional<RunStart> start_;  // set once plans and data are open
  std::optional<RunSaves> saves_;  // set from the end of the start on
  const LossScaler scaler_;
  Progress progress_;
  bool is_read_ = false;  // whether the batch of the next step is there, or being read
};

}  // namespace prun
