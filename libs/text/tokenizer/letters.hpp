// Classifies characters for the steps of BERT and others, as the package `tokenizers` does. Its Unicode is of
// another version than that of words.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- letters

enum class LetterClass : std::uint8_t {
  nonspacing_mark,
  combining_mark,
  bert_removed,  // controls and what nobody sees
  bert_space,
  bert_chinese,
  bert_punctuation,
  word,  // \w of the language of its own expressions
  // These decide where clusters of characters end: what joins the one before it, what none joins, what joins
  // the one after it.
  joins_before,
  keeps_apart,
  joins_behind
};

bool is_of(LetterClass kind, char32_t value);
// Returns an empty text for a character without another in lower case.
std::u32string_view lower_case_of(char32_t value);

// Count bytes of white space (White_Space) at a text's ends.
std::size_t leading_spaces(std::string_view text);
std::size_t trailing_spaces(std::string_view text);

struct LetterRange {
  char32_t first, last;
};
struct LowerCaseLetters {
  char32_t upper;
  std::u32string_view lower;
};
// These return the tables in order.
std::span<const LetterRange> letter_ranges(LetterClass kind);
std::span<const LowerCaseLetters> lower_case_letters();

// ------------------------------------------------------------------- characters
// Says what Unicode says of a character as far as tokenizers ask: its category, and of what kind it is: a
// letter (\p{L}), a number (\p{N}), a space (\s).

enum class CharacterKind : std::uint8_t { other, letter, number, space };

// Letters are capital, small, title, modifier and all others; numbers are digits and all others.
enum class Category : std::uint8_t {
  other,
  capital,
  small,
  title,
  modifier,
  letter,
  mark,
  digit,
  number,
  punctuation,
  symbol,
  space,
  count
};

struct CharacterRange {
  char32_t first, last;
  Category category;
};

// Returns all that are not `other`, in order.
std::span<const CharacterRange> character_ranges();

// Gives the same by code point, for frequent look-ups.
class CharacterKinds {
 public:
  CharacterKinds();
  // Is made once, when it is first asked for.
  static const CharacterKinds& shared();
  // `value` is a code point.
  CharacterKind of(char32_t value) const { return kinds_[value]; }
  Category category_of(char32_t value) const { return categories_[value]; }

 private:
  std::vector<CharacterKind> kinds_;
  std::vector<Category> categories_;
};

}  // namespace prun
