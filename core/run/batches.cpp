#include "run/batches.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "base/random.hpp"

namespace prun {

std::int64_t SampleOrder::index(std::int64_t number) const {
  const std::int64_t epoch = number / samples_, within = number % samples_;
  if (!shuffle_) return within;
  return static_cast<std::int64_t>(
      permute(static_cast<std::uint64_t>(within), static_cast<std::uint64_t>(samples_),
              static_cast<std::uint64_t>(seed_), static_cast<std::uint64_t>(epoch)));
}

BatchReader::BatchReader(DataInterface& data, SampleOrder order, BatchShape shape)
    : data_(data), order_(order), shape_(shape), thread_([this] { run(); }) {}

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
  std::fill_n(target.tokens + row * shape_.seq, shape_.seq, 0);
  std::fill_n(target.targets + row * shape_.seq, shape_.seq, -1);
  target.samples[row] = number;
}

std::int64_t BatchReader::read_sample(std::int64_t number, const BatchTarget& target, std::int64_t row) {
  std::int32_t* tokens = target.tokens + row * shape_.seq;
  std::int32_t* targets = target.targets + row * shape_.seq;
  const std::int64_t index = order_.index(number);
  raise(data_.read(index, tokens, targets));
  target.samples[row] = number;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < shape_.seq; ++i) {
    if (tokens[i] < 0 || tokens[i] >= shape_.vocab || targets[i] >= shape_.vocab)
      throw_error(ErrorCode::bad_input, "data: sample ", index, ", position ", i, " holds token ",
                  tokens[i] < 0 || tokens[i] >= shape_.vocab ? tokens[i] : targets[i],
                  ", outside of model.vocab = ", shape_.vocab);
    counted += targets[i] >= 0;
  }
  return counted;
}

}  // namespace prun
