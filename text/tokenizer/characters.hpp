// Says what Unicode says of a character as far as tokenizers ask: letter (\p{L}), number (\p{N}), space (\s).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

enum class CharacterKind : std::uint8_t { other, letter, number, space };

struct CharacterRange {
  char32_t first, last;
  CharacterKind kind;
};

// Returns all that are not `other`, in order.
std::span<const CharacterRange> character_ranges();

// Gives the same by code point, for frequent look-ups.
class CharacterKinds {
 public:
  CharacterKinds();
  // `value` is a code point.
  CharacterKind of(char32_t value) const { return kinds_[value]; }

 private:
  std::vector<CharacterKind> kinds_;
};

}  // namespace prun
