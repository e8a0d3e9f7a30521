#include "train/batches.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "base/thread.hpp"

namespace prun {

BatchReader::BatchReader(const Samples& samples, BatchShape shape)
    : samples_(samples),
      shape_(shape),
      sample_tokens_(static_cast<std::size_t>(samples.seq())),
      sample_targets_(sample_tokens_.size()),
      thread_(start_thread("the data reader", [this] { run(); })) {}

BatchReader::~BatchReader() {
  stop_ = true;
  asked_.release();
  thread_.join();
}

void BatchReader::start(std::int64_t first, std::vector<BatchTarget> targets) {
  first_ = first;
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
      if (within + row < shape_.global)
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
  target.samples[row] = number;
}

// Returns how many of the rank's targets count.
std::int64_t BatchReader::read_sample(std::int64_t number, const BatchTarget& target, std::int64_t row) {
  samples_.read(number, sample_tokens_, sample_targets_);
  const std::int32_t* const targets = sample_targets_.data() + shape_.first_position;
  std::copy_n(sample_tokens_.data() + shape_.first_position, shape_.positions,
              target.tokens + row * shape_.positions);
  std::copy_n(targets, shape_.positions, target.targets + row * shape_.positions);
  target.samples[row] = number;
  return std::count_if(targets, targets + shape_.positions, [](std::int32_t t) { return t >= 0; });
}

}  // namespace prun
