#include "tokenizer/characters.hpp"

#include <algorithm>

namespace prun {

CharacterKinds::CharacterKinds() : kinds_(0x110000, CharacterKind::other) {
  for (const CharacterRange& range : character_ranges())
    std::fill(kinds_.begin() + range.first, kinds_.begin() + range.last + 1, range.kind);
}

}  // namespace prun
