#include "train/loop/batches.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "base/thread.hpp"

namespace prun {

namespace {

// Returns null for an input that the program has forgotten, since nothing reads it.
template <class T>
T* staged_at(const PlanMemory& memory, Id id, std::int64_t step, std::int64_t microbatch) {
  return id == none ? nullptr : reinterpret_cast<T*>(memory.staged(id, step, microbatch));
}

}  // namespace

BatchShape batch_shape(const Assembly& assembly, const Program& program) {
  const BatchArithmetic& batch = assembly.batch();
  const StagedValues staged = staged_values(program);
  BatchShape shape;
  shape.rows = batch.micro * batch.ranks;
  shape.first_row = program.starts(staged.targets, assembly.rank())[0];
  shape.micro = batch.micro;
  shape.first_position = program.starts(staged.targets, assembly.rank())[1];
  shape.positions = program.local_dims(staged.targets)[1].extent;
  shape.order = program.requests().sequence_order;
  return shape;
}

std::vector<BatchTarget> batch_targets(const PlanMemory& memory, const StagedValues& staged,
                                       std::int64_t step, std::int64_t microbatches) {
  std::vector<BatchTarget> list;
  for (std::int64_t m = 0; m < microbatches; ++m)
    list.push_back({staged_at<std::int32_t>(memory, staged.tokens, step, m),
                    staged_at<std::int32_t>(memory, staged.targets, step, m),
                    staged_at<std::int64_t>(memory, staged.samples, step, m),
                    staged_at<std::int32_t>(memory, staged.groups, step, m)});
  return list;
}

BatchReader::BatchReader(const Samples& samples, BatchShape shape)
    : samples_(samples),
      shape_(shape),
      sample_tokens_(static_cast<std::size_t>(samples.seq())),
      sample_targets_(sample_tokens_.size()),
      sample_groups_(sample_tokens_.size()),
      thread_(start_thread("the data reader", [this] { run(); })) {}

BatchReader::~BatchReader() {
  stop_ = true;
  asked_.release();
  thread_.join();
}

void BatchReader::start(std::int64_t first, std::int64_t global, std::vector<BatchTarget> targets) {
  first_ = first;
  global_ = global;
  targets_ = std::move(targets);
  asked_.release();
}

std::int64_t BatchReader::finish() {
  answered_.acquire();
  raise(status_);
  return counted_;
}

void BatchReader::run() {
  prctl(PR_SET_NAME, "prun-data");
  for (;;) {
    asked_.acquire();
    if (stop_) return;
    status_ = guard([&] { fill(); });
    answered_.release();
  }
}

void BatchReader::fill() {
  counted_ = 0;
  std::int64_t within = shape_.first_row;  // number of the sample within the step
  for (const BatchTarget& target : targets_) {
    for (std::int64_t row = 0; row < shape_.micro; ++row) {
      if (within + row < global_ && first_ + within + row < shape_.end)
        counted_ += read_sample(first_ + within + row, target, row);
      else
        pad(first_ + within + row, target, row);
    }
    within += shape_.rows;
  }
}

void BatchReader::pad(std::int64_t number, const BatchTarget& target, std::int64_t row) const {
  std::fill_n(target.tokens + row * shape_.positions, shape_.positions, 0);
  std::fill_n(target.targets + row * shape_.positions, shape_.positions, -1);
  if (target.groups) std::fill_n(target.groups + row * shape_.positions, shape_.positions, 0);
  if (target.samples) target.samples[row] = number;
}

void BatchReader::read_groups(std::int64_t number, std::int32_t* groups) {
  samples_.read_groups(number, sample_groups_);
  for (std::int64_t i = 0; i < shape_.positions; ++i)
    groups[i] = sample_groups_[static_cast<std::size_t>(shape_.position(i))];
}

// Returns how many of the rank's targets count.
std::int64_t BatchReader::read_sample(std::int64_t number, const BatchTarget& target, std::int64_t row) {
  samples_.read(number, sample_tokens_, sample_targets_);
  std::int32_t *const tokens = target.tokens + row * shape_.positions, *const targets =
                                                                           target.targets +
                                                                           row * shape_.positions;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < shape_.positions; ++i) {
    const auto at = static_cast<std::size_t>(shape_.position(i));
    tokens[i] = sample_tokens_[at];
    targets[i] = sample_targets_[at];
    counted += targets[i] >= 0 ? 1 : 0;
  }
  if (target.groups) read_groups(number, target.groups + row * shape_.positions);
  if (target.samples) target.samples[row] = number;
  return counted;
}

}  // namespace prun
