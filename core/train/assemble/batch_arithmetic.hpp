// Computes how the batch divides over ranks and microbatches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "program/step_program.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// A mesh may have at most so many ranks.
inline constexpr std::int64_t most_ranks = 1 << 20;
// Returns the mesh axis that a strategy's section names, if it has one; nothing if it names several.
std::optional<std::string> axis_of(const RecipeSection& strategy);
// Returns all axes that the section names.
std::vector<std::string> axes_named(const RecipeSection& strategy);
// Returns the mesh of the ranks that a recipe requests.
Mesh mesh_of(const Recipe& recipe);

// States that global = micro x accumulate x data-parallel ranks, where it divides.
struct BatchArithmetic {
  std::int64_t global = 1, micro = 1, accumulate = 1, ranks = 1, seq = 1;
  bool vertical = false;   // all microbatches pass a layer before the next layer
  std::int32_t lanes = 1;  // microbatches that go through the layers side by side

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

}  // namespace prun
