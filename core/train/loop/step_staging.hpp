// Stages what the host gives a step before it runs, and reads what the step returns once it is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "execute/plan_memory.hpp"
#include "program/step.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/loop/learning_rate.hpp"
#include "train/loop/samples.hpp"

namespace prun {

// ------------------------------------------------------------------- step tally
// Holds what ops have counted in a step, as observers are told it.

// Holds a tally (ProgramApi::tally), layer by layer.
struct StepTally {
  std::string name;
  std::int64_t layers = 0;
  std::vector<double> numbers;
  bool bounds = false;  // numbers are, by layer, what was needed and what was planned for
};

// ------------------------------------------------------------------- quantization tallies
// Turns what a step has counted of quantized values into tallies, and says where too much of one has become
// zero.

// Returns, by value, shares of its numbers that are not zero: those that become zero ("...flushed.share") and
// those that become subnormal; the largest magnitude; and the largest and the smallest exponent of a scale,
// -127 and 128 of a layer that counts nothing.
std::vector<StepTally> quantization_tallies(const QuantizationReport& report, const double* counts,
                                            const double* peaks);

// Words a warning, once in a run.
class FlushedWarning {
 public:
  // `asked_by` is the section of the strategy that counts.
  FlushedWarning(std::string asked_by, double bound) : asked_by_(std::move(asked_by)), bound_(bound) {}
  // Returns nothing where no share is beyond the bound, or it was said before.
  std::string text(std::int64_t step, const std::vector<StepTally>& tallies);

 private:
  const std::string asked_by_;
  const double bound_;
  bool said_ = false;
};

// ------------------------------------------------------------------- step staging

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 0;  // 0 if the loss is not scaled
  bool kept = true;
  bool scale_spent = false;    // the step is not kept, and the scale of the loss cannot fall
  std::int64_t targets = 0;    // targets of all ranks
  std::int64_t sequences = 0;  // sequences of all ranks
  // Some rank was asked to stop, or the first one to save: all ranks learn it in the same step.
  bool stop = false, save = false;
  std::optional<double> exposed_communication;  // seconds of this rank, if the step was measured
  std::vector<StepTally> tallies;
  std::vector<double> losses;  // loss and number of targets by group, if there are groups
  std::string non_finite;      // if not kept, the first tensor of the model whose gradient is not finite
};

// States what a rank requests after a step; all ranks learn it by the step.
struct StepRequests {
  bool stop = false, save = false;
};

// Describes the batch of a step on this rank.
struct StagedBatch {
  std::int64_t global = 1;   // sequences of all ranks
  std::int64_t counted = 0;  // number of targets that count
};

// Stages the steps of a plan, which have numbers of this process, `number`, which alternate the sides of the
// staging area.
class StepStaging {
 public:
  StepStaging(const Assembly& assembly, const PlanMemory& memory, std::int64_t microbatches)
      : assembly_(assembly),
        memory_(memory),
        microbatches_(microbatches),
        values_(staged_values(assembly.program())),
        rate_(assembly.recipe()),
        scaler_(assembly.recipe()),
        quantization_(assembly.program().requests().quantization),
        stops_(!skips_non_finite(assembly.recipe())) {}

  // Returns where the samples of a step go.
  std::vector<BatchTarget> batch(std::int64_t number) const {
    return batch_targets(memory_, values_, number, microbatches_);
  }
  // Stages the other inputs of a step. `progress` counts the finished steps; `unknown` counts those that run
  // and whose results are unknown yet.
  void stage(std::int64_t number, const Progress& progress, std::int64_t unknown, const StagedBatch& batch,
             StepRequests requests) const;
  // Reads a step that is done and that `progress` does not count yet.
  StepResult read(std::int64_t number, const Progress& progress) const;

 private:
  void write_scalar(std::int64_t number, Id id, double value) const;
  void write_outcome(std::int64_t number, const StagedOutcome& outcome, double kept, double masked) const;
  double read_scalar(std::int64_t number, Id id) const;
  const double* read_numbers(std::int64_t number, Id id) const;
  StepTally read_tally(std::int64_t step, const StagedValues::Tally& tally) const;
  std::string first_non_finite(std::int64_t number) const;

  const Assembly& assembly_;
  const PlanMemory& memory_;
  const std::int64_t microbatches_;
  const StagedValues values_;
  const LearningRate rate_;
  const LossScaler scaler_;
  const std::optional<QuantizationReport> quantization_;
  const bool stops_;  // whether a step that is not finite stops the run
};

}  // namespace prun
