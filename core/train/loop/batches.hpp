// Reads the samples of a step ahead, on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "execute/plan_memory.hpp"
#include "program/step.hpp"
#include "prun/sequence_order.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/samples.hpp"

namespace prun {

// Says where one microbatch's inputs go; null: they are not needed.
struct BatchTarget {
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;
  std::int64_t* samples = nullptr;
  std::int32_t* groups = nullptr;  // groups of targets
};

// Describes a rank's share: it takes its own rows of each microbatch, [first_row, first_row + micro) of
// `rows`, and of these its own positions: those at the places [first_position, first_position + positions) of
// each.
struct BatchShape {
  std::int64_t rows = 1;
  std::int64_t first_row = 0;
  std::int64_t micro = 1;
  // Samples from this number on are padding, whose targets do not count.
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_position = 0;
  std::int64_t positions = 1;
  SequenceOrder order = {};

  std::int64_t position(std::int64_t i) const { return order.position(first_position + i); }
};

// Returns this rank's shape of a batch, for a program of the assembly.
BatchShape batch_shape(const Assembly& assembly, const Program& program);

// Returns where a step's microbatches are staged.
std::vector<BatchTarget> batch_targets(const PlanMemory& memory, const StagedValues& staged,
                                       std::int64_t step, std::int64_t microbatches);

// Reads one step's samples at a time, in the background.
class BatchReader {
 public:
  // Borrows the samples, which no other reader may use meanwhile.
  BatchReader(const Samples& samples, BatchShape shape);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Starts to fill `targets` (one a microbatch) with this rank's samples of the step that has so many from
  // number `first` on; rows beyond are padding as well.
  void start(std::int64_t first, std::int64_t global, std::vector<BatchTarget> targets);
  // Waits for that; returns how many of this rank's targets count. Raises what went wrong.
  std::int64_t finish();

 private:
  void run();
  void fill();
  std::int64_t read_sample(std::int64_t number, const BatchTarget& target, std::int64_t row);
  void read_groups(std::int64_t number, std::int32_t* groups);
  void pad(std::int64_t number, const BatchTarget& target, std::int64_t row) const;

  const Samples& samples_;
  BatchShape shape_;
  // These hold one sample, all positions.
  std::vector<std::int32_t> sample_tokens_, sample_targets_, sample_groups_;
  std::int64_t first_ = 0, global_ = 1;
  std::vector<BatchTarget> targets_;
  std::int64_t counted_ = 0;
  Status status_;
  std::atomic<bool> stop_ = false;
  std::counting_semaphore<2> asked_{0};  // released for a batch, and at the end
  std::binary_semaphore answered_{0};
  std::thread thread_;
};

}  // namespace prun
