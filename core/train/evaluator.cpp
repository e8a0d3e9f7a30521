#include "train/evaluator.hpp"

#include <algorithm>

namespace prun {
namespace {

std::int64_t count_of(const Samples& samples) {
  std::int64_t count = 0;
  for (const SampleSet& set : samples.sets()) count += set.count;
  return count;
}

BatchShape shape_of(const Assembly& assembly, const Program& program, std::int64_t samples) {
  BatchShape shape = batch_shape(assembly, program);
  shape.end = samples;
  return shape;
}

}  // namespace

Evaluator::Evaluator(Parts parts, Samples samples)
    : assembly_(parts.assembly),
      program_(parts.program),
      executor_(parts.program, parts.plan, parts.assembly.devices(),
                {parts.assembly.recipe().flag("run.poison"), parts.assembly.rank(), 0, parts.beneath},
                std::move(parts.comms), std::move(parts.probes)),
      staged_(staged_values(parts.program)),
      samples_(std::move(samples)),
      all_(count_of(samples_)),
      reader_(samples_, shape_of(parts.assembly, parts.program, all_)) {}

Evaluated Evaluator::run(std::int64_t batches) {
  const std::int64_t global = assembly_.batch().global, all = (all_ + global - 1) / global;
  double loss = 0, counted = 0;
  for (std::int64_t batch = 0; batch < std::min(batches, all); ++batch) {
    if (started_ - finished_ == 2) finish(loss, counted);
    start(batch);
  }
  while (finished_ < started_) finish(loss, counted);
  if (counted == 0)
    throw_error(ErrorCode::bad_input, "not one target counts in the data that the loss is asked of");
  return {loss / counted, static_cast<std::int64_t>(counted)};
}

// Read while the one before it runs.
void Evaluator::start(std::int64_t batch) {
  reader_.start(batch * assembly_.batch().global,
                batch_targets(memory(), staged_, started_, assembly_.batch().accumulate));
  write_scalar(staged_.counted, static_cast<double>(reader_.finish()));
  write_scalar(staged_.seed, 0);
  for (AxisId axis = 0; axis < staged_.first.size(); ++axis)
    write_scalar(staged_.first[axis], assembly_.mesh().coordinate(assembly_.rank(), axis) == 0);
  executor_.start_step();
  ++started_;
}

void Evaluator::finish(double& loss, double& counted) {
  executor_.finish_step();
  loss += read_scalar(staged_.loss_sum);
  counted += read_scalar(staged_.all_counted);
  ++finished_;
}

void Evaluator::write_scalar(Id id, double value) const {
  if (id != none) *reinterpret_cast<double*>(memory().staged(id, started_, 0)) = value;
}

double Evaluator::read_scalar(Id id) const {
  return *reinterpret_cast<const double*>(memory().staged(id, finished_, 0));
}

}  // namespace prun
