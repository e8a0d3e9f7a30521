// Cuts text into the words within which a byte-level BPE merges. What a tokenizer.json gives as a regular
// expression stands here as code, one function for each expression that is known.
#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/characters.hpp"

namespace prun {

enum class WordRules : std::uint8_t { gpt2, llama3, qwen2 };

// The rules that an expression stands for; nothing where it is not known.
std::optional<WordRules> word_rules_of(std::string_view expression);

class WordSplitter {
 public:
  explicit WordSplitter(WordRules rules) : rules_(rules) {}

  // Length of the first word of a text that is not empty. The text is valid UTF-8; where it ends counts.
  std::size_t first_word(std::string_view text) const;
  // Whether the words of a text are those of what lies before `at` and of what lies behind, so that both can
  // be split by themselves. False where it takes more than a look at the neighbours to tell.
  bool may_cut(std::string_view text, std::size_t at) const;

 private:
  class Cursor;

  std::size_t gpt2_word(std::string_view text) const;
  std::size_t llama3_word(std::string_view text, std::size_t longest_number) const;
  std::size_t spaces(std::string_view text) const;

  WordRules rules_;
  CharacterKinds kinds_;
};

}  // namespace prun
