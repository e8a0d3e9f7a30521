// Chooses tokens that a model predicts from those around them: the seed, the sample's number and the position
// decide which, and what it sees in their place, so that it is the same in every layout and after a resume.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

class MaskedTokens {
 public:
  // `never` lists tokens that are not predicted and that none becomes, such as those that separate sentences.
  MaskedTokens(double share, std::int32_t mask, std::vector<std::int64_t> never, std::int64_t vocab,
               std::uint64_t seed)
      : share_(share), mask_(mask), never_(std::move(never)), vocab_(vocab), seed_(seed) {}
  // Returns nothing if the recipe masks none. Throws bad_input for tokens beyond the vocabulary.
  static std::optional<MaskedTokens> of(const Recipe& recipe, std::int64_t vocab);

  // Masks a sample that data gave: a position's target becomes its own token if that is chosen and no target
  // says that it does not count; of those, eight in ten become the mask, and one any token but those of
  // `never`.
  void apply(std::int64_t number, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

 private:
  bool is_never(std::int32_t token) const;
  // Returns what replaces a chosen token, by two random words of its own.
  std::int32_t seen(std::uint32_t which, std::uint32_t any, std::int32_t token) const;

  double share_;
  std::int32_t mask_;
  std::vector<std::int64_t> never_;
  std::int64_t vocab_;
  std::uint64_t seed_;
};

// Checks that the model predicts what the data has it predict.
void check_masks(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems);

}  // namespace prun
