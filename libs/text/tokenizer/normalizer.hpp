// Changes a text before words are looked for in it, as the `normalizer` of a tokenizer.json lists it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- charsmap
// Reads the map of characters that SentencePiece compiles into a model: a double array that finds the bytes
// to replace, and the texts that take their place. Others wrote it: nothing in it is trusted.

class Charsmap {
 public:
  // `encoded` is as a tokenizer.json has it, in base64. `where` names it in messages. Throws bad_input.
  Charsmap(std::string_view encoded, const std::string& where);

  // Clusters of few bytes are looked up whole, what is left by characters. Returns the text, or `made`.
  std::string_view of(std::string_view text, std::string& made) const;

 private:
  // Returns what replaces a text that begins with a key: the shortest such key.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

// ------------------------------------------------------------------- normal form
// Computes Unicode's normal forms: characters that combine are put in their order, and together or apart, so
// that texts that look the same are the same. Some tokenizers ask for them.

// Lists characters that combine with one before them; they are ordered by their classes.
struct CombiningRange {
  char32_t first, last;
  std::uint8_t order;
};
// Describes a character that is the same as one or two others.
struct Decomposition {
  char32_t whole, first, second;  // second: 0 where there is one
  bool composes;                  // the two become it
};
// Describes a character that differs from these, which are apart and in order, in its looks alone.
struct CompatibleLetters {
  char32_t whole;
  std::u32string_view letters;
};
std::span<const CombiningRange> combining_ranges();
std::span<const Decomposition> canonical_decompositions();
std::span<const CompatibleLetters> compatible_letters();

// C: together; D: apart; K: without what is looks alone.
enum class NormalKind : std::uint8_t { c, d, kc, kd };

void append_utf8(std::string& to, char32_t value);

class NormalForm {
 public:
  explicit NormalForm(NormalKind kind = NormalKind::c);
  NormalKind kind() const { return kind_; }
  // Returns the text in this form: itself, or `made`, which is written then. It is UTF-8. A text may be cut
  // before any character that combines with none before it, as every letter of ASCII is.
  std::string_view of(std::string_view text, std::string& made) const;
  // Says whether the character may combine with one before it, or is made of others.
  bool is_doubtful(char32_t value) const { return doubtful_[value] != 0; }

 private:
  struct Letter {
    char32_t value;
    std::uint8_t order;
  };

  void doubt_what_is_made_of_others();
  std::size_t first_doubtful(std::string_view text) const;
  void decompose(char32_t value, std::vector<Letter>& to) const;
  static void put_in_order(std::vector<Letter>& letters);
  void compose(std::vector<Letter>& letters) const;
  char32_t composed(char32_t first, char32_t second) const;

  NormalKind kind_;
  unsigned char plain_below_;  // letters that begin with a byte below it are as they are
  // By code point: 0 where it is as it is, whatever stands in front of it. Else it may combine, or is made of
  // others; those of `order` have that class.
  std::vector<std::uint8_t> doubtful_, order_;
  std::unordered_map<char32_t, const Decomposition*> parts_;
  std::unordered_map<char32_t, std::u32string_view> looks_;
  std::unordered_map<std::uint64_t, char32_t> pairs_;
};

// ------------------------------------------------------------------- normalizer

// Puts a text in front of one that is not empty.
struct PrependText {
  std::string text;
};
// Puts `to` in the place of each `from`, or of each run of two of it and more.
struct ReplaceText {
  std::string from, to;
  bool runs = false;
};
// Takes white space off.
struct StripSpaces {
  bool left = true, right = true;
};
struct LowerCase {};
// Takes off all marks that combine.
struct StripAccents {};
// Cleans a text as BERT does.
struct BertClean {
  bool clean = true, chinese = true, accents = true, lower = true;
};

class Normalizer {
 public:
  // Holds the results of two steps alternately. Each thread has one.
  using Scratch = std::array<std::string, 2>;
  using Step = std::variant<PrependText, ReplaceText, StripSpaces, LowerCase, StripAccents, BertClean,
                            std::shared_ptr<const NormalForm>, std::shared_ptr<const Charsmap>>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Returns the text, or what was made of it, which is in `scratch`. It is UTF-8.
  std::string_view of(std::string_view text, Scratch& scratch) const;

  bool empty() const { return steps_.empty(); }
  // Says whether a text may be normalized in pieces, cut between any two letters of ASCII; and in front of
  // this one.
  bool works_by_letters() const;
  bool may_cut_before(char32_t value) const;
  // Says whether it puts something before each text.
  bool puts_in_front() const;

 private:
  std::vector<Step> steps_;
};

}  // namespace prun
