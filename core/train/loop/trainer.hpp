// Runs one rank's training, step by step: it reads batches, returns results, restores and saves everything.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "execute/communicators.hpp"
#include "prun/observer.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_ramp.hpp"
#include "train/checkpoint/run_saves.hpp"
#include "train/checkpoint/run_start.hpp"
#include "train/loop/batches.hpp"
#include "train/loop/membership.hpp"
#include "train/loop/replicas.hpp"
#include "train/loop/step_runners.hpp"
#include "train/loop/validation.hpp"

namespace prun {

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
  // averages are evaluated, no save either. Every rank calls it.
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
