// The steps by which a text is cut into the words that a model takes one by one, as the `pre_tokenizer` of a
// tokenizer.json lists them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/letters.hpp"
#include "tokenizer/word_pattern.hpp"

namespace prun {

// ------------------------------------------------------------------- word splitter
// Cuts text into the words within which a byte-level BPE merges. What a tokenizer.json gives as a regular
// expression stands here as code, one function for each expression that is known.

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

// ------------------------------------------------------------------- cutting

// Cuts by an expression that matches every text, and has rules of its own.
struct CutWords {
  WordRules rules = WordRules::gpt2;
};
// Cuts numbers from all else, each digit by itself or not.
struct CutDigits {
  bool single = false;
};
// Cuts at white space, which is dropped.
struct CutSpaces {};
// Cuts at white space, which is dropped, and around punctuation, as BERT does.
struct CutBert {};
// Cuts at white space, which is dropped, and between words and what is none.
struct CutWordRuns {};
// Cuts at a text, at what an expression matches, or at punctuation where there is neither.
struct CutAt {
  enum class Keep : std::uint8_t { removed, isolated, with_previous, with_next, contiguous };
  std::string text = {};
  std::shared_ptr<const WordPattern> pattern = {};
  Keep keep = Keep::isolated;
  bool inverted = false;  // at what lies between instead
};
// Puts a space in front, unless there is one.
struct PutSpace {};
// Spaces become marks, of which one stands in front.
struct MarkSpaces {
  enum class Front : std::uint8_t { never, first, always };
  std::string mark;
  Front front = Front::always;
  bool cut = true;  // in front of each mark
};

using CuttingStep =
    std::variant<CutWords, CutDigits, CutSpaces, CutBert, CutWordRuns, CutAt, PutSpace, MarkSpaces>;

// Is for one thread.
class Cutter {
 public:
  // Borrows the steps.
  explicit Cutter(const std::vector<CuttingStep>& steps);

  // Calls word(text) for each word of a text; `first`: it begins where the whole text does.
  template <class Word>
  void cut(std::string_view text, bool first, Word&& word) {
    cut_from(0, text, first, word);
  }

 private:
  struct Piece {
    std::string_view text;
    bool first;
  };

  template <class Word>
  void cut_from(std::size_t step, std::string_view text, bool first, Word& word) {
    if (text.empty()) return;
    if (step == steps_.size()) return word(text);
    if (std::holds_alternative<CutWords>(steps_[step])) {
      for (bool front = first; !text.empty(); front = false) {
        const std::size_t length = splitters_[step].first_word(text);
        cut_from(step + 1, text.substr(0, length), front, word);
        text.remove_prefix(length);
      }
      return;
    }
    const std::size_t begin = pieces_.size();
    add_pieces(step, text, first);
    const std::size_t end = pieces_.size();
    for (std::size_t i = begin; i < end; ++i) {
      const Piece piece = pieces_[i];
      cut_from(step + 1, piece.text, piece.first, word);
    }
    pieces_.resize(begin);
  }
  void add_pieces(std::size_t step, std::string_view text, bool first);

  const std::vector<CuttingStep>& steps_;
  std::vector<WordSplitter> splitters_;  // by step
  std::vector<std::string> marked_;      // by step
  std::vector<Piece> pieces_;            // of the steps under way
};

}  // namespace prun
