#include "train/loop/evaluator.hpp"

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

ExecutorOptions options_of(const ForwardParts& parts) {
  return {parts.assembly.recipe().flag("run.poison"), parts.assembly.rank(), 0, parts.base_program};
}

void stage_constants(const Assembly& assembly, const PlanMemory& memory, const StagedValues& staged,
                     std::int64_t step) {
  const auto write = [&](Id id, double value) {
    if (id != none) *reinterpret_cast<double*>(memory.staged(id, step, 0)) = value;
  };
  write(staged.seed, 0);
  for (AxisId axis = 0; axis < staged.first.size(); ++axis)
    write(staged.first[axis], assembly.mesh().coordinate(assembly.rank(), axis) == 0);
}

Evaluator::Evaluator(const ForwardParts& parts, Samples samples)
    : assembly_(parts.assembly),
      program_(parts.program),
      executor_(parts.program, parts.plan, parts.assembly.devices(), options_of(parts), parts.comms,
                parts.probes),
      staged_(staged_values(parts.program)),
      all_(std::move(samples), parts.assembly, parts.program) {}

Evaluator::Source::Source(Samples of, const Assembly& assembly, const Program& program)
    : samples(std::move(of)), count(count_of(samples)), reader(samples, shape_of(assembly, program, count)) {}

// Evaluates sets, which share what reads their files with the blend of them, whose reader rests meanwhile.
std::vector<std::pair<std::string, Evaluated>> Evaluator::run_by_set(std::int64_t batches) {
  const std::span<const SampleSet> sets = samples().sets();
  for (std::size_t i = sets_.size(); i < sets.size(); ++i)
    sets_.emplace_back(samples().of_set(i), assembly_, program_);
  std::vector<std::pair<std::string, Evaluated>> list;
  for (std::size_t i = 0; i < sets.size(); ++i) list.emplace_back(sets[i].name, run(sets_[i], batches));
  return list;
}

Evaluated Evaluator::run(Source& source, std::int64_t batches) {
  const std::int64_t global = assembly_.batch().global, all = (source.count + global - 1) / global;
  double loss = 0, counted = 0;
  for (std::int64_t batch = 0; batch < std::min(batches, all); ++batch) {
    if (started_ - finished_ == 2) finish(loss, counted);
    start(source, batch);
  }
  while (finished_ < started_) finish(loss, counted);
  if (counted == 0)
    throw_error(ErrorCode::bad_input, "not one target counts in the data that the loss is asked of");
  return {loss / counted, static_cast<std::int64_t>(counted)};
}

// Starts a batch, which is read while the one before it runs.
void Evaluator::start(Source& source, std::int64_t batch) {
  const BatchArithmetic& step = assembly_.batch();
  source.reader.start(batch * step.global, step.global,
                      batch_targets(memory(), staged_, started_, step.accumulate));
  *reinterpret_cast<double*>(memory().staged(staged_.counted, started_, 0)) =
      static_cast<double>(source.reader.finish());
  stage_constants(assembly_, memory(), staged_, started_);
  executor_.start_step();
  ++started_;
}

void Evaluator::finish(double& loss, double& counted) {
  executor_.finish_step();
  loss += read_scalar(staged_.loss_sum);
  counted += read_scalar(staged_.all_counted);
  ++finished_;
}

double Evaluator::read_scalar(Id id) const {
  return *reinterpret_cast<const double*>(memory().staged(id, finished_, 0));
}

}  // namespace prun
