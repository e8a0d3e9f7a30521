// Trains: the loop from recipe to last step, with its observers, checkpoints and signals.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "prun/observer.hpp"
#include "run/assembly.hpp"
#include "run/batches.hpp"
#include "run/checkpoint.hpp"
#include "run/communicators.hpp"
#include "run/echo.hpp"
#include "run/executor.hpp"
#include "run/process_memory.hpp"
#include "run/schedule.hpp"

namespace prun {

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  bool kept = true;
  std::int64_t targets = 0;  // of all ranks
  bool stop = false;         // some rank was asked to stop: all ranks learn it in the same step
};

// Who is told what the queues of a rank do; they must outlive its trainer. Called once the communicators
// stand; one rank alone has none: null.
using Probes = std::function<std::vector<Probe*>(const Assembly&, Communicators*)>;

// What makes a rank one of many; all of it may be left out for one rank alone.
struct Membership {
  Exchange exchange;
  Probes probes;
  // A rank of many without the others: to its exchanges there is only an echo.
  bool alone = false;
  std::function<void(std::int64_t step)> before_step;
  std::function<void()> disconnecting;  // before the communicators go
};

// One run, step by step. Deterministic: recipe and data fix every bit of it.
class Trainer {
 public:
  Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership = {});
  ~Trainer();

  // The next step; the batch after it is read meanwhile. `stop`: this rank was asked to.
  StepResult step(bool stop = false);
  const Progress& progress() const { return progress_; }
  const Assembly& assembly() const { return assembly_; }
  Executor& executor() { return executor_; }
  const std::filesystem::path& folder() const { return folder_; }
  Communicators* communicators() { return communicators_.get(); }
  // The newest checkpoint. Every rank may call it, the first one writes.
  std::filesystem::path save();
  // Of every rank, up to now. Every rank calls it.
  std::vector<RankMemory> memory_of_ranks() const {
    return prun::memory_of_ranks(assembly_, membership_.exchange);
  }

 private:
  void open_data(PluginHost& plugins);
  void restore();
  void read_ahead();
  void find_staged();
  void write_scalar(Id id, double value);
  double read_scalar(Id id);

  // Staged values, looked up once.
  struct Staged {
    Id tokens, targets, samples;
    Id lr, step, seed, counted, stop_in;
    Id loss_sum, grad_norm, keep, all_counted, stop_out;
  };

  const Assembly& assembly_;
  Membership membership_;
  std::unique_ptr<Communicators> communicators_;
  Echo echo_;  // where there are none
  Executor executor_;
  Staged staged_{};
  std::vector<std::pair<Id, bool>> first_;  // whether this rank is the first of an axis
  LearningRate rate_;
  std::filesystem::path folder_;
  std::shared_ptr<DataInterface> data_;
  std::unique_ptr<BatchReader> reader_;
  Progress progress_;
  std::int64_t local_steps_ = 0;  // of this process: they alternate the staging sides
};

// The whole run as `prun RECIPE` does it, of one rank; the first has the observers and writes the
// checkpoints. `resume_command` is what to print when it is stopped. Returns the exit code: 0, or 130 / 143
// after a signal. Raises Error for everything that goes wrong.
int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
          Membership membership = {});

}  // namespace prun
