// SPDX-License-Identifier: Apache-2.0
// Plugin kind `observer`: receives the facts, the steps and the events of a run. It cannot change a run.
#pragma once

#include "prun/options.hpp"

namespace prun {

struct RunInfo {
  Text name, folder, recipe, device;
  std::int64_t steps = 0;       // last step of the run
  std::int64_t first_step = 1;  // > 1 after a resume
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;  // tokens of a step once the batch has its full size, where it grows
  double flops_per_token = 0;        // causal model FLOPs: 6 N + 6 layers heads head_dim seq
  double peak_flops = 0;             // sum over all devices; 0: unknown, so that there is no MFU
  std::int64_t plan_bytes = 0;
};

// Holds a metric of a step (ProgramApi::tally), with the same number of values for each layer of a
// segment.
struct TallyInfo {
  Text name;  // "block.choices"
  std::int64_t layers = 0;
  Array<double> numbers;  // layer by layer
};

// Holds the loss of a subset of the targets.
struct EvaluatedLoss {
  Text name;        // name of a set, "validation.0", or of a state
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
  // Exposed communication: how long compute on the first rank waited for it; negative: not measured.
  double exposed_seconds = -1;
  // Pauses of training since the previous step, other than evaluations: to copy data for a checkpoint, and to
  // compare replicas.
  double save_seconds = 0, compare_seconds = 0;
  // Power and clock of the first rank's device, averaged over about the last second, and the energy that the
  // devices of all ranks used for this step if all are like that one. 0: unknown.
  double watts = 0, clock_mhz = 0, joules = 0;
  Array<TallyInfo> tallies;
  double loss_scale = 0;  // factor of this step's gradients; 0: the recipe scales none
  // These count the samples of this step, of which there are fewer while the batch grows, and of the whole
  // run up to it.
  std::int64_t tokens = 0, all_tokens = 0;
  Array<EvaluatedLoss> losses = {};  // losses of this step by set and role, if the recipe asks for them
};

// Holds the validation loss, with the parameters as they are after a step.
struct EvaluationInfo {
  std::int64_t step = 0;
  double loss = 0;  // mean over the targets that count
  std::int64_t targets = 0;
  double seconds = 0;
  // Loss with an optimizer state in place of the parameters, by its name, if a strategy asks for it, and loss
  // of each set, if the recipe does.
  Array<EvaluatedLoss> sets = {};
};

// Reports one rank's process: its part of the host's memory, and of the device's where that is separate.
struct RankMemory {
  std::int64_t plan_bytes = 0;     // bytes of its arena
  std::int64_t process_bytes = 0;  // estimate, made in advance, of what the rest needs
  std::int64_t peak_bytes = 0;     // largest resident size; 0: not reported by the system
  std::int64_t device_plan_bytes = 0;
  std::int64_t device_process_bytes = 0;
  std::int64_t device_bytes = 0;  // bytes in use at the end by all processes; 0: not reported
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
