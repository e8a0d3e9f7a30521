// Uses a checkpoint's parameters without training, in any layout: it computes their loss on the validation
// data, and the text that they go on with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "generate/sampling.hpp"
#include "ranks/rank_answers.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {

struct CheckpointLoss {
  std::string checkpoint;
  Evaluated evaluated;
};
// `command` is the words that this process was started with; each rank of the recipe, where there are
// several, is a process that runs them again and must come to answer_loss() with the same arguments.
struct LossQuestion {
  std::filesystem::path checkpoint;
  std::int64_t batches = 1;
  std::string state = {};  // of an optimizer, in place of the weights; empty: the weights
};
CheckpointLoss loss_of_checkpoint(const Recipe& recipe, PluginHost& plugins, const LossQuestion& question,
                                  const std::vector<std::string>& command);
int answer_loss(const Recipe& recipe, const std::vector<SearchPlace>& places, const LossQuestion& question);

struct TextQuestion {
  std::filesystem::path checkpoint;
  std::vector<std::int32_t> tokens;  // those to go on with; there is at least one
  Sampling sampling;
  std::int64_t most = 64;  // limits the tokens to add
  std::int32_t end = -1;   // ends the text, and is not part of it; negative: no token does
  std::string state = {};
};
// Takes one sequence at a time: see one_text().
std::vector<std::int32_t> text_of_checkpoint(const Recipe& recipe, PluginHost& plugins,
                                             const TextQuestion& question,
                                             const std::vector<std::string>& command);
int answer_text(const Recipe& recipe, const std::vector<SearchPlace>& places, const TextQuestion& question);

// Returns the recipe with the smallest batch that its layout can take, for one text.
Recipe one_text(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
