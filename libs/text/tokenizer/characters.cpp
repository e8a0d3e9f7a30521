#include "tokenizer/characters.hpp"

#include <algorithm>

namespace prun {
namespace {

CharacterKind kind_of(Category category) {
  switch (category) {
    case Category::capital:
    case Category::small:
    case Category::title:
    case Category::modifier:
    case Category::letter: return CharacterKind::letter;
    case Category::digit:
    case Category::number: return CharacterKind::number;
    case Category::space: return CharacterKind::space;
    default: return CharacterKind::other;
  }
}

}  // namespace

CharacterKinds::CharacterKinds() : kinds_(0x110000, CharacterKind::other), categories_(kinds_.size()) {
  for (const CharacterRange& range : character_ranges()) {
    std::fill(categories_.begin() + range.first, categories_.begin() + range.last + 1, range.category);
    std::fill(kinds_.begin() + range.first, kinds_.begin() + range.last + 1, kind_of(range.category));
  }
}

const CharacterKinds& CharacterKinds::shared() {
  static const CharacterKinds all;
  return all;
}

}  // namespace prun
