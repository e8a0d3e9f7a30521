// Cuts text into the words within which a byte-level BPE merges. What a tokenizer.json gives as a regular
// expression stands here as code, one function for each expression that is known.
#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/characters.hpp"

namespace prun {

enum class WordRules : std::uint8_t {
  gpt2,
  llama3,
  qwen2,
  spaces  // where a text may be cut, of another expression
};

// Returns the rules of an expression; nothing where it is not known.
std::optional<WordRules> word_rules_of(std::string_view expression);

class WordSplitter {
 public:
  explicit WordSplitter(WordRules rules) : rules_(rules) {}

  // Returns the length of the first word of a text that is not empty. The text is valid UTF-8; where it ends
  // matters.
  std::size_t first_word(std::string_view text) const;
  // Says whether the words of a text are those of the part before `at` and of the part after it, so that both
  // can be split separately. It returns false where more than the neighbours would have to be read.
  bool may_cut(std::string_view text, std::size_t at) const;

 private:
  class Cursor;

  std::size_t gpt2_word(std::string_view text) const;
  std::size_t llama3_word(std::string_view text, std::size_t longest_number) const;
  std::size_t spaces(std::string_view text) const;

  WordRules rules_;
  const CharacterKinds* kinds_ = &CharacterKinds::shared();
};

}  // namespace prun
