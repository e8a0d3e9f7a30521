// Holds what the ring algorithms share. The data is cut in as many blocks as there are members, each block in
// chunks. At stage s a member sends one block to its right and gets another from its left.
#pragma once

#include "algorithms.hpp"

namespace prun::ucx {

// Chunk c of stage s comes at time c + s, so that all stages of the pipeline are at work at once. Calls
// visit(stage, chunk) in the order in which all members write their steps down.
template <class Visit>
void each_in_pipeline(std::int64_t stages, std::int64_t chunks, Visit&& visit) {
  for (std::int64_t time = 0; time < chunks + stages - 1; ++time)
    for (std::int64_t stage = std::min(stages - 1, time); stage >= 0 && time - stage < chunks; --stage)
      visit(stage, time - stage);
}

// Holds the blocks of an all-reduce: member r sends block r first, and at each stage the one before.
class Ring {
 public:
  explicit Ring(const Shape& shape);

  std::int64_t chunks() const { return chunks_; }
  std::int64_t chunk_bytes() const { return chunk_bytes_; }  // the size of the largest chunk
  std::int32_t sent_block(std::int64_t stage) const { return shape_.wrap(shape_.rank - stage); }
  std::int32_t received_block(std::int64_t stage) const { return sent_block(stage + 1); }
  // Returns the chunk's place within all blocks.
  Part chunk(std::int32_t block, std::int64_t chunk) const;

 private:
  Part block(std::int32_t block) const { return part_of(shape_.count, shape_.element, shape_.size, block); }

  const Shape& shape_;
  std::int64_t chunks_ = 1;
  std::int64_t chunk_bytes_ = 0;
};

// Keeps for each stage and chunk the number of the step that others wait for.
class StepGrid {
 public:
  StepGrid(std::int64_t stages, std::int64_t chunks)
      : chunks_(chunks), steps_(static_cast<std::size_t>(stages * chunks), no_step) {}
  StepId& at(std::int64_t stage, std::int64_t chunk) {
    return steps_[static_cast<std::size_t>(stage * chunks_ + chunk)];
  }

 private:
  std::int64_t chunks_;
  std::vector<StepId> steps_;
};

// Holds places in scratch that are reused one after the other; each remembers the step after which it is free
// again. There are never more places than are taken in all.
class Slots {
 public:
  Slots(PlanWriter& plan, std::size_t count, std::int64_t takes, std::int64_t bytes);
  struct Slot {
    Place place;
    StepId free_after = no_step;
  };
  std::size_t take() { return next_++ % slots_.size(); }
  Slot& operator[](std::size_t slot) { return slots_[slot]; }

 private:
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

}  // namespace prun::ucx
