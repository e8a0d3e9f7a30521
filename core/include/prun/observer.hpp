// SPDX-License-Identifier: Apache-2.0
// Plugin kind `observer`: sees a run's facts, its steps and what happens to it. It cannot change a run.
#pragma once

#include "prun/options.hpp"

namespace prun {

struct RunInfo {
  Text name, folder, recipe, device;
  std::int64_t steps = 0;       // last step of the run
  std::int64_t first_step = 1;  // > 1 after a resume
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;  // samples of a step once the batch is full, where it grows
  double flops_per_token = 0;        // causal model FLOPs: 6 N + 6 layers heads head_dim seq
  double peak_flops = 0;             // sum over all devices; 0: unknown, so that there is no MFU
  std::int64_t plan_bytes = 0;
};

// Holds what ops have counted in a step (ProgramApi::tally): the same number of counts for each layer of a
// segment.
struct TallyInfo {
  Text name;  // "block.choices"
  std::int64_t layers = 0;
  Array<double> numbers;  // layer by layer
};

// Holds the loss of some of the targets by themselves.
struct EvaluatedLoss {
  Text name;        // name of a set: "validation.0"
  double loss = 0;  // mean over the targets that count
  std::int64_t targets = 0;
};

struct StepInfo {
  std::int64_t step = 0;
  double loss = 0;  // mean over the targets that count
  double grad_norm = 0;
  double lr = 0;
  bool kept = true;  // false if the update was masked (a non-finite gradient, skipped by recipe)
  std::int64_t targets = 0;
  double seconds = 0;
  double elapsed = 0;  // time since the first step of this process began
  // Communication made the first rank's computing wait for so long; negative: not measured in this step.
  double exposed_seconds = -1;
  // Training paused for so long since the step before, apart from evaluations: to copy what a save writes,
  // and to compare replicas.
  double save_seconds = 0, compare_seconds = 0;
  // These are the power and clock of the first rank's device over about the last second, and the energy that
  // the devices of all ranks took for this step if all are like that one. 0 means unknown.
  double watts = 0, clock_mhz = 0, joules = 0;
  Array<TallyInfo> tallies;
  double loss_scale = 0;  // factor of this step's gradients; 0: the recipe scales none
  // These count the samples of this step, of which there are fewer while the batch grows, and of the whole
  // run up to it.
  std::int64_t tokens = 0, all_tokens = 0;
  Array<EvaluatedLoss> losses = {};  // losses of this step by set and role, if the recipe asks for them
};

// Holds the loss on data that is not trained on, with the parameters as they are after a step.
struct EvaluationInfo {
  std::int64_t step = 0;
  double loss = 0;  // mean over the targets that count
  std::int64_t targets = 0;
  double seconds = 0;
  bool averaged = false;           // whether averages of the weights were evaluated as well
  double averaged_loss = 0;        // mean loss of the averages on the same batches
  Array<EvaluatedLoss> sets = {};  // loss of each set, if the recipe asks for it
};

// Reports one rank's process: its part of the host's memory, and of the device's where that is separate.
struct RankMemory {
  std::int64_t plan_bytes = 0;     // bytes of its arena
  std::int64_t process_bytes = 0;  // estimate, made in advance, of what the rest needs
  std::int64_t peak_bytes = 0;     // largest resident size; 0: the system does not say
  std::int64_t device_plan_bytes = 0;
  std::int64_t device_process_bytes = 0;
  std::int64_t device_bytes = 0;  // bytes in use at the end by all processes; 0: the driver does not say
};

struct FinishInfo {
  Array<RankMemory> memory;  // by rank
  double save_seconds = 0;   // time from the last step until the last save was in place
};

enum class EventKind : std::uint8_t { note, warning, saved, stopped, failed };

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void start(const RunInfo&) {}
  virtual void step(const StepInfo&) {}
  virtual void evaluation(const EvaluationInfo&) {}
  virtual void event(EventKind, std::string_view) {}
  virtual void finish(const FinishInfo&) {}
};

class ObserverInterface {
 public:
  virtual Status start(const RunInfo& info) noexcept = 0;
  virtual Status step(const StepInfo& info) noexcept = 0;
  virtual Status evaluation(const EvaluationInfo& info) noexcept = 0;
  virtual Status event(EventKind kind, Text message) noexcept = 0;
  virtual Status finish(const FinishInfo& info) noexcept = 0;

 protected:
  ~ObserverInterface() = default;
};

template <class Author>
class ObserverAdapter final : public ObserverInterface {
 public:
  explicit ObserverAdapter(const Options& options) : author_(options) {}
  Status start(const RunInfo& info) noexcept override {
    return guard([&] { base().start(info); });
  }
  Status step(const StepInfo& info) noexcept override {
    return guard([&] { base().step(info); });
  }
  Status evaluation(const EvaluationInfo& info) noexcept override {
    return guard([&] { base().evaluation(info); });
  }
  Status event(EventKind kind, Text message) noexcept override {
    return guard([&] { base().event(kind, message.view()); });
  }
  Status finish(const FinishInfo& info) noexcept override {
    return guard([&] { base().finish(info); });
  }

 private:
  Observer& base() { return author_; }
  Author author_;
};

}  // namespace prun
