#include "train/loop/step_staging.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.hpp"
#include "base/text.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- quantization tallies

constexpr std::string_view flushed_end = ".flushed.share";
constexpr int bias = 127;  // of an exponent in fp32

double share_of(double part, double all) { return all > 0 ? part / all : 0; }

}  // namespace

std::vector<StepTally> quantization_tallies(const QuantizationReport& report, const double* counts,
                                            const double* peaks) {
  std::vector<StepTally> tallies;
  for (const QuantizationReport::Rows& value : report.values) {
    const auto add = [&](std::string_view what, auto of) {
      StepTally tally{value.name + std::string(what), value.layers, {}};
      for (std::int64_t row = value.first; row < value.first + value.layers; ++row)
        tally.numbers.push_back(of(counts + 3 * row, peaks + 3 * row));
      tallies.push_back(std::move(tally));
    };
    add(flushed_end, [](const double* count, const double*) { return share_of(count[1], count[0]); });
    add(".subnormal.share", [](const double* count, const double*) { return share_of(count[2], count[0]); });
    add(".amax.largest", [](const double*, const double* peak) { return peak[0]; });
    add(".exponent.largest", [](const double*, const double* peak) { return peak[1] - bias; });
    add(".exponent.least", [](const double*, const double* peak) { return 255 - peak[2] - bias; });
  }
  return tallies;
}

std::string FlushedWarning::text(std::int64_t step, const std::vector<StepTally>& tallies) {
  const StepTally* worst = nullptr;
  std::int64_t most_at = 0, beyond = 0;
  double most = bound_;
  for (const StepTally& tally : tallies) {
    if (!tally.name.ends_with(flushed_end)) continue;
    const auto largest = std::max_element(tally.numbers.begin(), tally.numbers.end());
    beyond += *largest > bound_;
    if (*largest <= most) continue;
    worst = &tally;
    most = *largest;
    most_at = largest - tally.numbers.begin();
  }
  if (!worst || said_) return "";
  said_ = true;
  const std::string name = worst->name.substr(0, worst->name.size() - flushed_end.size());
  return detail::concat("step ", step, ": of the numbers of '", name, "' in layer ", most_at,
                        " that are not zero, ", format("%.2g %%", 100 * most),
                        " became zero when they were quantized, more than the bound of [", asked_by_, "], ",
                        bound_,
                        beyond > 1 ? detail::concat(", as did those of other values (", beyond - 1, ")") : "",
                        "; leave such layers unquantized, or raise the bound");
}

namespace {

// ------------------------------------------------------------------- step staging

// Ranks' requests are summed: each request to stop counts one, and one rank's request to save counts half.
constexpr double request_to_save = 0.5;

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
                        const StagedBatch& batch, StepRequests requests) const {
  const std::int64_t next = progress.updates + 1;
  write_scalar(number, values_.counted, static_cast<double>(batch.counted));
  write_scalar(number, values_.stop, (requests.stop ? 1 : 0) + (requests.save ? request_to_save : 0));
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
  if (quantization_)
    write_scalar(number, quantization_->on, (progress.step + unknown + 1) % quantization_->every == 0);
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
  if (quantization_ && (progress.step + 1) % quantization_->every == 0)
    for (StepTally& tally : quantization_tallies(*quantization_, read_numbers(number, quantization_->counts),
                                                 read_numbers(number, quantization_->peaks)))
      result.tallies.push_back(std::move(tally));
  if (values_.losses != none) {
    const double* const begin = read_numbers(number, values_.losses);
    result.losses = {begin, begin + assembly_.program().value(values_.losses).elements()};
  }
  if (!result.kept) result.non_finite = first_non_finite(number);
  const double requests = read_scalar(number, values_.any_stop);
  result.stop = requests >= 1;
  result.save = requests != std::floor(requests);
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
