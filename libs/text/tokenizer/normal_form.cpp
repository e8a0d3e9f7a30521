#include "tokenizer/normal_form.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {
namespace {

// Syllables of Hangul follow from their two or three letters by their numbers.
constexpr char32_t syllables = 0xAC00, leads = 0x1100, vowels = 0x1161, tails = 0x11A7;
constexpr char32_t lead_count = 19, vowel_count = 21, tail_count = 28,
                   syllable_count = lead_count * vowel_count * tail_count;

std::uint64_t pair_of(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

}  // namespace

void append_utf8(std::string& to, char32_t value) {
  const auto put = [&](char32_t byte) { to += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) return put(0xC0 | value >> 6), tail(0);
  if (value < 0x10000) return put(0xE0 | value >> 12), tail(6), tail(0);
  put(0xF0 | value >> 18), tail(12), tail(6), tail(0);
}

NormalForm::NormalForm(NormalKind kind)
    : kind_(kind), plain_below_(kind == NormalKind::c ? 0xCC : 0x80), doubtful_(0x110000), order_(0x110000) {
  for (const CombiningRange& range : combining_ranges())
    for (char32_t value = range.first; value <= range.last; ++value) {
      order_[value] = range.order;
      doubtful_[value] = 1;
    }
  for (const Decomposition& known : canonical_decompositions()) {
    parts_[known.whole] = &known;
    if (known.composes) {
      pairs_[pair_of(known.first, known.second)] = known.whole;
      doubtful_[known.second] = 1;
    } else {
      doubtful_[known.whole] = 1;
    }
  }
  std::fill_n(doubtful_.begin() + vowels, vowel_count, std::uint8_t{1});
  std::fill_n(doubtful_.begin() + tails + 1, tail_count - 1, std::uint8_t{1});
  doubt_what_is_made_of_others();
}

void NormalForm::doubt_what_is_made_of_others() {
  if (kind_ == NormalKind::kc || kind_ == NormalKind::kd)
    for (const CompatibleLetters& known : compatible_letters()) {
      looks_[known.whole] = known.letters;
      doubtful_[known.whole] = 1;
    }
  if (kind_ == NormalKind::c || kind_ == NormalKind::kc) return;
  for (const Decomposition& known : canonical_decompositions()) doubtful_[known.whole] = 1;
  std::fill_n(doubtful_.begin() + syllables, syllable_count, std::uint8_t{1});
}

// Bytes in front of the first character that may have to change; all of them where none may.
std::size_t NormalForm::first_doubtful(std::string_view text) const {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < plain_below_) {
      ++at;
      continue;
    }
    const CodePoint point = decode_utf8(text.substr(at));
    if (doubtful_[point.value]) return at;
    at += point.bytes;
  }
  return at;
}

// A doubtful character is taken together with the one before it and all doubtful ones behind.
std::string_view NormalForm::of(std::string_view text, std::string& made) const {
  std::size_t doubtful = first_doubtful(text);
  if (doubtful == text.size()) return text;
  made.clear();
  std::vector<Letter> letters;
  while (!text.empty()) {
    std::size_t before = doubtful;
    if (doubtful < text.size() && before > 0) do
        --before;
      while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80);
    made += text.substr(0, before);
    text.remove_prefix(before);
    letters.clear();
    for (bool first = true; !text.empty(); first = false) {
      const CodePoint point = decode_utf8(text);
      if (!first && !doubtful_[point.value]) break;
      decompose(point.value, letters);
      text.remove_prefix(point.bytes);
    }
    put_in_order(letters);
    if (kind_ == NormalKind::c || kind_ == NormalKind::kc) compose(letters);
    for (const Letter& letter : letters) append_utf8(made, letter.value);
    doubtful = first_doubtful(text);
  }
  return made;
}

void NormalForm::decompose(char32_t value, std::vector<Letter>& to) const {
  if (value >= syllables && value < syllables + syllable_count) {
    const char32_t number = value - syllables, tail = number % tail_count;
    to.push_back({leads + number / (vowel_count * tail_count), 0});
    to.push_back({vowels + number / tail_count % vowel_count, 0});
    if (tail > 0) to.push_back({tails + tail, 0});
    return;
  }
  if (const auto looks = looks_.find(value); looks != looks_.end()) {
    for (const char32_t letter : looks->second) to.push_back({letter, order_[letter]});
    return;
  }
  const auto parts = value < 0x80 ? parts_.end() : parts_.find(value);
  if (parts == parts_.end()) return to.push_back({value, order_[value]});
  decompose(parts->second->first, to);
  if (parts->second->second != 0) decompose(parts->second->second, to);
}

char32_t NormalForm::composed(char32_t first, char32_t second) const {
  if (first >= leads && first < leads + lead_count && second >= vowels && second < vowels + vowel_count)
    return syllables + ((first - leads) * vowel_count + (second - vowels)) * tail_count;
  if (first >= syllables && first < syllables + syllable_count && (first - syllables) % tail_count == 0 &&
      second > tails && second < tails + tail_count)
    return first + (second - tails);
  const auto pair = pairs_.find(pair_of(first, second));
  return pair == pairs_.end() ? 0 : pair->second;
}

// Sorts what combines, between those that do not.
void NormalForm::put_in_order(std::vector<Letter>& letters) {
  for (auto run = letters.begin(); run != letters.end();) {
    const auto end = std::find_if(run, letters.end(), [](const Letter& letter) { return letter.order == 0; });
    std::stable_sort(run, end, [](const Letter& a, const Letter& b) { return a.order < b.order; });
    run = end == letters.end() ? end : end + 1;
  }
}

// Each joins the last of those that do not combine, unless one in between that has stayed keeps it off.
void NormalForm::compose(std::vector<Letter>& letters) const {
  std::size_t kept = 0, starter = letters.size();
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const Letter letter = letters[i];
    const bool kept_off = starter + 1 < kept && letters[kept - 1].order >= letter.order;
    const char32_t whole = starter < kept && !kept_off ? composed(letters[starter].value, letter.value) : 0;
    if (whole != 0) {
      letters[starter].value = whole;
      continue;
    }
    if (letter.order == 0) starter = kept;
    letters[kept++] = letter;
  }
  letters.resize(kept);
}

}  // namespace prun
