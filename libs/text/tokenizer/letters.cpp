#include "tokenizer/letters.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- letters

bool is_white_space(char32_t value) {
  return value == ' ' || (value >= 0x09 && value <= 0x0D) || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

}  // namespace

bool is_of(LetterClass kind, char32_t value) {
  const std::span<const LetterRange> ranges = letter_ranges(kind);
  const auto found = std::lower_bound(ranges.begin(), ranges.end(), value,
                                      [](const LetterRange& range, char32_t of) { return range.last < of; });
  return found != ranges.end() && found->first <= value;
}

std::u32string_view lower_case_of(char32_t value) {
  const std::span<const LowerCaseLetters> letters = lower_case_letters();
  const auto found =
      std::lower_bound(letters.begin(), letters.end(), value,
                       [](const LowerCaseLetters& letter, char32_t of) { return letter.upper < of; });
  return found != letters.end() && found->upper == value ? found->lower : std::u32string_view();
}

std::size_t leading_spaces(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = decode_utf8(text.substr(at));
    if (!is_white_space(point.value)) break;
    at += point.bytes;
  }
  return at;
}

std::size_t trailing_spaces(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_white_space(decode_utf8(text.substr(at)).value)) break;
    end = at;
  }
  return text.size() - end;
}

namespace {

// ------------------------------------------------------------------- characters

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
