// Computes how the batch divides over ranks and microbatches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- batch arithmetic

// A mesh may have at most so many ranks.
inline constexpr std::int64_t most_ranks = 1 << 20;
// Returns the mesh axis that a strategy's section names, if it has one; nothing if it names several.
std::optional<std::string> axis_of(const RecipeSection& strategy);
std::vector<std::string> axes_named(const RecipeSection& strategy);
// Returns the mesh of the ranks that a recipe requests.
Mesh mesh_of(const Recipe& recipe);

// States that global = micro x accumulate x data-parallel ranks, where it divides.
struct BatchArithmetic {
  std::int64_t global = 1, micro = 1, accumulate = 1, ranks = 1, seq = 1;
  bool vertical = false;        // all microbatches pass a layer before the next layer
  std::int32_t interleave = 1;  // microbatches that go through the layers side by side

  // Counts the ranks of all axes that a strategy splits the batch over, by its traits.
  static BatchArithmetic of(const Recipe& recipe, PluginHost& plugins);

  // Returns the arithmetic of a step of `sequences` sequences.
  BatchArithmetic with_global(std::int64_t sequences) const;

  std::int64_t tokens() const { return global * seq; }
  // Returns the number of sequences that fill up the last microbatch and do not count.
  std::int64_t padding() const { return micro * accumulate * ranks - global; }
  // Returns a text such as "32 sequences = 4 micro x 8 accumulate x 1 rank = 8192 tokens a step".
  std::string text() const;
};

// Throws if a rank's part of a microbatch differs from what was counted for the batch.
void check_rows(const Program& program, const BatchArithmetic& batch);
// Throws if the layout does not allow the recipe's order of microbatches.
void check_order(const BatchArithmetic& batch, bool in_pipeline);

// ------------------------------------------------------------------- batch ramp
// Describes how the batch grows from the first step of a run on, until a step has batch.global sequences. Its
// size follows from the samples that the run was trained on before the step, so there is nothing to save or
// to agree on.

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
