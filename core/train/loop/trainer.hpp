// One rank's training, step by step: batches in, results out, everything restored and saved.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/echo.hpp"
#include "execute/executor.hpp"
#include "program/step.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint_saver.hpp"
#include "train/checkpoint/weights.hpp"
#include "train/loop/batches.hpp"
#include "train/loop/evaluator.hpp"
#include "train/loop/learning_rate.hpp"
#include "train/loop/rank_memory.hpp"
#include "train/loop/replicas.hpp"

namespace prun {

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  bool kept = true;
  std::int64_t targets = 0;  // of all ranks
  // Some rank was asked to stop, the first one to save: all ranks learn it in the same step.
  bool stop = false, save = false;
  std::optional<double> exposed_communication;  // seconds of this rank, where the step was measured
  std::string non_finite;  // where not kept: the first tensor of the model whose gradient is not finite
};

// Who is told what the queues of a rank do; they must outlive its trainer. Called once the communicators
// stand; one rank alone has none: null.
using Probes = std::function<std::vector<Probe*>(const Assembly&, Communicators*)>;

// Held as long as communicators may be used from elsewhere: whoever aborts them knows them by it.
using CommunicatorLease = std::shared_ptr<void>;

// What makes a rank one of many; all of it may be left out for one rank alone.
struct Membership {
  Exchange exchange;
  Probes probes, evaluation_probes;
  // A rank of many without the others: to its exchanges there is only an echo.
  bool alone = false;
  // Told of each step once those before it are finished; it may have been started already.
  std::function<void(std::int64_t step)> before_step;
  // The lease ends before the communicators do, however the trainer ends.
  std::function<CommunicatorLease(Communicators&)> connected;
};

// Of a rank of many, once all agree on what they are going to do; null for one alone. Every rank calls it.
std::unique_ptr<Communicators> connect(const Assembly& assembly, PluginHost& plugins,
                                       const Membership& membership);
CommunicatorLease lend(const Membership& membership, Communicators* communicators);

// One run, step by step. Deterministic: recipe and data fix every bit of it.
class Trainer {
 public:
  Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership = {});

  // Lets the next step run, whose batch has been read meanwhile; every rank in the same order of calls.
  // `stop`, `save`: this rank was asked to; only the first may be asked to save. It may be started while the
  // one before it still runs, whose outcome it heeds: it goes on from the updates there have been then, and
  // where that is to stop the run, changes nothing.
  void start(bool stop = false, bool save = false);
  // The earliest step that runs, once it is done.
  StepResult finish();
  // Steps that are started and not finished: two at most.
  std::int64_t running() const { return started_ - finished_; }
  // One step by itself.
  StepResult step(bool stop = false) {
    start(stop);
    return finish();
  }
  // Many, each started while the one before it runs; calls body(result) for each.
  template <class Body>
  void run(std::int64_t steps, Body&& body);
  // Of steps that are finished.
  const Progress& progress() const { return progress_; }
  const Assembly& assembly() const { return assembly_; }
  const PlanMemory& memory() const { return executor_.memory(); }
  const std::filesystem::path& folder() const { return folder_; }
  Communicators* communicators() { return communicators_.get(); }
  // Makes the run's folder its own; refused where it is another's. The first rank does, before anything is
  // written there.
  void claim_folder();
  // What is to be told of the checkpoint that the run goes on from, or of the weights that it starts from, if
  // it does; each damaged one by itself.
  std::vector<std::string> resume_notes() const;
  std::vector<std::string> resume_warnings() const;
  // Every rank calls these. The first lets a checkpoint be written beside the steps to come, while none runs;
  // the second waits until it is in place. The third is to find before the first step what would stop them.
  void begin_save();
  void finish_save() { saver().finish(); }
  void try_save() { saver().try_out(folder_); }
  // What came to be in place since it was asked last, on the first rank. Throws what went wrong.
  std::optional<std::filesystem::path> saved() { return saver_ ? saver_->saved() : std::nullopt; }
  // A checkpoint, in place.
  std::filesystem::path save();
  // Whether ranks that hold the same still do, where the recipe wants to know; diverged, where they do not.
  // While no step runs. Every rank calls it.
  void compare_replicas();
  // The loss on data that is not trained on, where the recipe evaluates; while no step runs. Every rank calls
  // it.
  Evaluated evaluate();
  // Of every rank, up to now. Every rank calls it.
  std::vector<RankMemory> memory_of_ranks() const {
    return prun::memory_of_ranks(assembly_, membership_.exchange);
  }

 private:
  ForwardParts evaluation_parts();
  // What parameters started from, where that is not the seed or a checkpoint to go on from.
  std::unique_ptr<StartValues> restore(PluginHost& plugins);
  Announce announce() const;
  CheckpointSaver& saver();
  void move_damaged();
  void read_ahead();
  void stage(double wishes);
  void write_scalar(Id id, double value) const;
  void write_outcome(const StagedOutcome& outcome, double kept, double masked) const;
  double read_scalar(Id id) const;
  StepResult read_results() const;
  std::string first_non_finite() const;
  void say_step() const;

  const Assembly& assembly_;
  Membership membership_;
  std::unique_ptr<Communicators> communicators_;
  CommunicatorLease lease_;
  Echo echo_;  // where there are none
  Executor executor_;
  std::optional<Evaluator> evaluator_;
  std::optional<Replicas> replicas_;
  StagedValues staged_;
  LearningRate rate_;
  std::filesystem::path folder_;
  Samples samples_;
  BatchReader reader_;
  std::optional<LoadedCheckpoint> loaded_;
  RunIdentity run_;                       // the first rank's, once it has claimed the folder
  std::int64_t saves_ = 0;                // of the run so far, likewise
  std::string plugins_;                   // plugin_record(), for whom it saves
  std::optional<CheckpointSaver> saver_;  // once it is needed
  Progress progress_;
  // Steps of this process, which alternate the staging sides; `read_`: whose batch is there or on its way.
  std::int64_t read_ = 0, started_ = 0, finished_ = 0;
};

template <class Body>
void Trainer::run(std::int64_t steps, Body&& body) {
  const std::int64_t end = progress_.step + steps;
  while (progress_.step < end) {
    while (running() < 2 && progress_.step + running() < end) start();
    body(finish());
  }
}

}  // namespace prun
