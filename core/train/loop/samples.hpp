// Describes the data of a recipe: its sets, how they are blended, which part of them is for what, and in
// which order samples come. All of it follows from a sample's number, so that there is nothing to save or to
// agree on.
#pragma once

#include <semaphore>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "execute/plan_memory.hpp"
#include "program/step.hpp"
#include "prun/data.hpp"
#include "prun/sequence_order.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/checkpoint/manifest.hpp"

namespace prun {

// ------------------------------------------------------------------- samples

// Gives the order of one set: each epoch visits every sample once, in an order that the seed, the epoch and
// the set's number fix.
class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, bool shuffle, std::int64_t seed, std::size_t set = 0)
      : samples_(samples), shuffle_(shuffle), seed_(seed), set_(set) {}

  // Returns which of the set's samples has that number in the order.
  std::int64_t index(std::int64_t number) const;

 private:
  std::int64_t samples_;
  bool shuffle_;
  std::int64_t seed_;
  std::size_t set_;
};

// Spreads samples over sets by their weights, evenly: of the first n samples each set has its share of n, to
// within two samples, whatever n is.
class Blend {
 public:
  // Takes at least one weight; all are above 0.
  explicit Blend(std::span<const double> weights);

  struct Place {
    std::size_t set = 0;
    std::int64_t number = 0;  // number of the set's samples before it
  };
  Place place(std::int64_t number) const;

 private:
  // Each set takes this share of what the sets before have left; the last takes all.
  std::vector<std::uint64_t> shares_;
};

// Holds one opened set, and the range of its samples that is read.
struct SampleSet {
  std::string name;  // name such as "data", "data.blend.0"
  std::shared_ptr<DataInterface> data;
  DataInfo info;
  double weight = 1;
  std::int64_t first = 0, count = 0;
};

class Samples {
 public:
  // `vocab` is the model's. What follows `document_end` does not count as a target.
  Samples(std::vector<SampleSet> sets, bool shuffle, std::int64_t seed, std::int64_t seq, std::int64_t vocab,
          std::optional<std::int64_t> document_end = {});

  // Reads a sample. Samples are counted over the whole run: number n is the n-th one, whatever the layout. It
  // fills `seq` tokens and targets; throws bad_input for tokens beyond the vocabulary.
  void read(std::int64_t number, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  // Returns the group of each target of the sample that was read last.
  void read_groups(std::int64_t number, std::span<std::int32_t> groups) const;
  void set_loss_groups(LossGroups groups) { groups_ = std::move(groups); }
  void mask(std::optional<MaskedTokens> masked) { masked_ = std::move(masked); }
  // Cuts spans: each set then gives texts of that many tokens.
  void cut(std::optional<CorruptedSpans> spans) { spans_ = spans; }
  std::int64_t seq() const { return seq_; }
  std::span<const SampleSet> sets() const { return sets_; }
  // These are the samples of one set alone, in the order in which they lie.
  Samples of_set(std::size_t number) const {
    Samples samples({sets_.at(number)}, false, 0, seq_, vocab_, document_end_);
    samples.mask(masked_);
    samples.cut(spans_);
    return samples;
  }

 private:
  void read_text(const Blend::Place& place, std::span<std::int32_t> tokens,
                 std::span<std::int32_t> targets) const;

  std::vector<SampleSet> sets_;
  Blend blend_;
  std::vector<SampleOrder> orders_;  // orders by set
  std::int64_t seq_, vocab_;
  std::optional<std::int64_t> document_end_;
  LossGroups groups_;
  std::optional<MaskedTokens> masked_;
  std::optional<CorruptedSpans> spans_;
};

// Returns the sizes that a checkpoint states.
std::vector<SetSize> sizes_of(const Samples& samples);

// The samples at a set's end that `data.validation` keeps from training are for validation, unless the recipe
// has [[validation]].
enum class DataPart : std::uint8_t { training, validation };

// Returns the rows of the smallest table that tokens or targets are looked up in.
std::int64_t vocabulary(const Program& program);

// Says whether the recipe names data to validate on.
bool has_validation(const Recipe& recipe);
// Opens the data with plugins of its own; data that are wrong for the model are refused. Validation takes
// samples in the order in which they lie; requesting it where there is none is bad input.
Samples open_data(const Assembly& assembly, PluginHost& plugins, DataPart part = DataPart::training);

// ------------------------------------------------------------------- batches
// Reads the samples of a step ahead, on a thread of its own.

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
