#include "train/loop/step_staging.hpp"

#include <cmath>
#include <utility>

#include "base/random.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// Ranks' wishes are summed: each wish to stop counts one, and one rank's wish to save counts half.
constexpr double wish_to_save = 0.5;

// A tally whose last dimension has this name is a sum over targets, and reported as their mean.
constexpr Name per_target = "per_target";

// Returns the seed that dropout draws from in one step, which is exact in a double.
double step_seed(std::int64_t seed, std::int64_t step) {
  const RandomStream stream(static_cast<std::uint64_t>(seed),
                            stream_id("dropout", static_cast<std::uint64_t>(step)));
  return stream.bits64(0) >> 11;
}

}  // namespace

// Stages a step. While a step runs, it is unknown whether it is kept: each running step adds one update in
// the one case, and in the other, where that stops the run, none.
void StepStaging::stage(std::int64_t number, const Progress& progress, std::int64_t unknown,
                        const StagedBatch& batch, StepWishes wishes) const {
  const std::int64_t next = progress.updates + 1;
  write_scalar(number, values_.counted, static_cast<double>(batch.counted));
  write_scalar(number, values_.stop, (wishes.stop ? 1 : 0) + (wishes.save ? wish_to_save : 0));
  write_outcome(number, values_.lr, rate_.at(next + unknown), rate_.at(next));
  write_outcome(number, values_.step, static_cast<double>(next + unknown), static_cast<double>(next));
  const bool halts = unknown > 0 && (stops_ || scaler_.is_spent(progress.loss_scale));
  write_outcome(number, values_.halt, 0, halts);
  if (values_.go.kept != none) write_outcome(number, values_.go, 1, !halts);
  if (values_.loss_scale.kept != none) {
    const auto scale_after = [&](bool finite) {
      return (unknown > 0 ? scaler_.after(progress.loss_scale, finite) : progress.loss_scale).scale;
    };
    write_outcome(number, values_.loss_scale, scale_after(true), scale_after(false));
  }
  write_scalar(number, values_.seed,
               step_seed(assembly_.recipe().integer("run.seed"), progress.step + unknown));
  if (values_.inv_sequences != none)
    write_scalar(number, values_.inv_sequences, 1 / static_cast<double>(batch.global));
  if (fp8_.staged().on != none)
    write_scalar(number, fp8_.staged().on, fp8_.counts_in(progress.step + unknown + 1));
  for (AxisId axis = 0; axis < values_.first.size(); ++axis)
    if (values_.first[axis] != none)
      write_scalar(number, values_.first[axis], assembly_.mesh().coordinate(assembly_.rank(), axis) == 0);
}

void StepStaging::write_scalar(std::int64_t number, Id id, double value) const {
  *reinterpret_cast<double*>(memory_.staged(id, number, 0)) = value;
}

void StepStaging::write_outcome(std::int64_t number, const StagedOutcome& outcome, double kept,
                                double masked) const {
  write_scalar(number, outcome.kept, kept);
  write_scalar(number, outcome.masked, masked);
}

StepResult StepStaging::read(std::int64_t number, const Progress& progress) const {
  const double counted = read_scalar(number, values_.all_counted);
  if (counted == 0)
    throw_error(ErrorCode::bad_input, "step ", progress.step + 1, ": not one target of the batch counts");
  StepResult result;
  result.lr = rate_.at(progress.updates + 1);
  result.targets = static_cast<std::int64_t>(counted);
  result.loss = read_scalar(number, values_.loss_sum) / counted;
  result.loss_scale = progress.loss_scale.scale;
  result.grad_norm = read_scalar(number, values_.grad_norm);
  result.kept = read_scalar(number, values_.keep) != 0;
  result.scale_spent = !result.kept && scaler_.is_spent(progress.loss_scale);
  for (const StagedValues::Tally& tally : values_.tallies)
    result.tallies.push_back(read_tally(number, tally));
  if (fp8_.counts_in(progress.step + 1))
    for (StepTally& tally :
         fp8_.tallies(read_numbers(number, fp8_.staged().counts), read_numbers(number, fp8_.staged().peaks)))
      result.tallies.push_back(std::move(tally));
  if (values_.losses != none) {
    const double* const begin = read_numbers(number, values_.losses);
    result.losses = {begin, begin + assembly_.program().value(values_.losses).elements()};
  }
  if (!result.kept) result.non_finite = first_non_finite(number);
  const double wishes = read_scalar(number, values_.any_stop);
  result.stop = wishes >= 1;
  result.save = wishes != std::floor(wishes);
  return result;
}

double StepStaging::read_scalar(std::int64_t number, Id id) const { return *read_numbers(number, id); }

const double* StepStaging::read_numbers(std::int64_t number, Id id) const {
  return reinterpret_cast<const double*>(memory_.staged(id, number, 0));
}

StepTally StepStaging::read_tally(std::int64_t step, const StagedValues::Tally& tally) const {
  const Value& sum = assembly_.program().value(tally.sum);
  const double* const begin = read_numbers(step, tally.reported);
  StepTally read{sum.name, sum.dims.front().extent, {begin, begin + sum.elements()}, is_bound(sum)};
  if (sum.dims.back().name == per_target)
    for (double& number : read.numbers) number /= read_scalar(step, values_.all_counted);
  return read;
}

std::string StepStaging::first_non_finite(std::int64_t number) const {
  const double* counts = read_numbers(number, values_.non_finite);
  for (const TrainedTensor& tensor : trained_tensors(assembly_.program()))
    if (*counts++ > 0) return full_name(assembly_.program(), tensor.parameter, tensor.layer);
  return "";
}

}  // namespace prun
