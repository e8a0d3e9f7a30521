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
#include "run/executor.hpp"
#include "run/schedule.hpp"

namespace prun {

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  bool kept = true;
  std::int64_t targets = 0;
};

// One run, step by step. Deterministic: recipe and data fix every bit of it.
class Trainer {
 public:
  Trainer(const Assembly& assembly, PluginHost& plugins);

  // The next step; the batch after it is read meanwhile.
  StepResult step();
  const Progress& progress() const { return progress_; }
  const Assembly& assembly() const { return assembly_; }
  Executor& executor() { return executor_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path save();

 private:
  void open_data(PluginHost& plugins);
  void restore();
  void read_ahead();
  void write_scalar(const char* name, double value);
  double read_scalar(const char* name);

  const Assembly& assembly_;
  Executor executor_;
  LearningRate rate_;
  std::filesystem::path folder_;
  std::shared_ptr<DataInterface> data_;
  std::unique_ptr<BatchReader> reader_;
  Progress progress_;
  std::int64_t local_steps_ = 0;  // of this process: they alternate the staging sides
};

// The whole run as `prun RECIPE` does it. `resume_command` is what to print when it is stopped. Returns the
// exit code: 0, or 130 / 143 after a signal. Raises Error for everything that goes wrong.
int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command);

}  // namespace prun
