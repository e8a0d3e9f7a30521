// Says what Unicode says of a character as far as tokenizers ask: its category, and of what kind it is: a
// letter (\p{L}), a number (\p{N}), a space (\s).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

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
