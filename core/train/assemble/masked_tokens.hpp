// Chooses tokens that a model predicts from those around them: the seed, the sample's number and the position
// decide which, and what it sees in their place, so that it is the same in every layout and after a resume.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- masked tokens

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

// ------------------------------------------------------------------- corrupted spans
// Makes samples of an encoder and a decoder: spans of a text are cut out of the encoder's tokens, a token
// stands for each, and the decoder must write them. The seed and the sample's number decide which they are,
// so that they are the same in every layout and after a resume.

// States how many tokens a text has, how many of them are cut out, and in how many spans.
struct SpanSizes {
  std::int64_t text = 0, cut = 0, spans = 0;

  // Returns the number of tokens of the encoder; the next function returns those of the decoder: each has a
  // token for each span, and one at the end.
  std::int64_t inputs() const { return text - cut + spans + 1; }
  std::int64_t outputs() const { return cut + spans + 1; }

  friend bool operator==(const SpanSizes&, const SpanSizes&) = default;
};
SpanSizes span_sizes(std::int64_t text, double share, double length);

class CorruptedSpans {
 public:
  struct Tokens {
    std::int32_t first_span = 0, end = 0, start = 0;  // token of span n is first_span - n
  };
  CorruptedSpans(SpanSizes sizes, Tokens tokens, std::uint64_t seed)
      : sizes_(sizes), tokens_(tokens), seed_(seed) {}
  // Returns nothing if the recipe cuts no spans. Throws bad_input for lengths that make no sample, and for
  // tokens beyond the vocabulary.
  static std::optional<CorruptedSpans> of(const Recipe& recipe, std::int64_t vocab);

  // Returns the length of a sample's text: so many tokens are read from the data.
  std::int64_t text() const { return sizes_.text; }
  // Makes sample `number` of the run: the encoder's tokens, then the decoder's; only the targets of the
  // latter count.
  void apply(std::int64_t number, std::span<const std::int32_t> text, std::span<std::int32_t> tokens,
             std::span<std::int32_t> targets) const;

 private:
  // Cuts `items` into parts, none of them empty, and returns where each ends. `word` says which of a
  // position's random words is used.
  std::vector<std::int64_t> ends(std::uint64_t stream, std::size_t word, std::int64_t items) const;

  SpanSizes sizes_;
  Tokens tokens_;
  std::uint64_t seed_;
};

// Returns how many tokens of a set's text a sample of the recipe takes.
std::int64_t text_of_sample(const Recipe& recipe);

// Checks that the model predicts what the data has it predict.
void check_spans(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems);

}  // namespace prun
