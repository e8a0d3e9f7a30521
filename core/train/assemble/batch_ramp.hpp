// Describes how the batch grows from the first step of a run on, until a step has batch.global sequences. Its
// size follows from the samples that the run was trained on before the step, so there is nothing to save or
// to agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {

class BatchRamp {
 public:
  // Reads a recipe that has passed check_ramp().
  static BatchRamp of(const Recipe& recipe);
  // Makes a ramp from `start` to `full` by equal increments, evenly spread over `samples` samples.
  static BatchRamp even(std::int64_t start, std::int64_t increment, std::int64_t samples, std::int64_t full);

  // Describes a size of the batch, which lasts until `until` samples were trained on.
  struct Rung {
    std::int64_t global = 0, until = 0;
  };
  // Returns the sizes before the full batch, in order; if there are none, every step has the full batch.
  const std::vector<Rung>& rungs() const { return rungs_; }

  // Returns the sequences of the step before which the run was trained on so many samples.
  std::int64_t global_at(std::int64_t samples) const;

  // Describes consecutive steps of one size.
  struct Stretch {
    std::int64_t global = 0;
    std::int64_t first_step = 1;
    std::int64_t first_sample = 0;
  };
  // Lists the stretches, which begin with a run's first step; the last one has no end.
  std::vector<Stretch> stretches() const;
  // Returns how many steps it takes until a run was trained on so many samples, or more.
  std::int64_t steps_for(std::int64_t samples) const;
  // Returns a text such as "8 sequences a step, 16 from step 11 on, 32 from step 31 on", shortened if there
  // are many.
  std::string text() const;

 private:
  std::vector<Rung> rungs_;
  std::int64_t full_ = 1;
};

// Returns the recipe whose steps all have batch.global sequences.
Recipe without_ramp(const Recipe& recipe);
// Adds one problem if the ramp of a recipe cannot be climbed. `batch` is that of a full step.
void check_ramp(const Recipe& recipe, const BatchArithmetic& batch, Diagnostics& problems);

}  // namespace prun
