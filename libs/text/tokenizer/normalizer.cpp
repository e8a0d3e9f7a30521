#include "tokenizer/normalizer.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- charsmap

constexpr std::string_view base64_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Nothing for what is not base64.
std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char letter : text) {
    const std::size_t value = base64_letters.find(letter);
    if (value == base64_letters.npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// These read parts of a node of the double array.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label_of(std::uint32_t unit) { return unit & (0x80000000u | 0xFF); }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

// Says whether two characters that follow each other belong to one cluster, as far as clusters of few bytes
// go.
bool are_one_cluster(char32_t before, char32_t behind) {
  if (before == '\r' && behind == '\n') return true;
  if (is_of(LetterClass::keeps_apart, before) || is_of(LetterClass::keeps_apart, behind)) return false;
  return is_of(LetterClass::joins_before, behind) || is_of(LetterClass::joins_behind, before);
}

std::size_t first_cluster(std::string_view text) {
  CodePoint before = decode_utf8(text);
  std::size_t at = before.bytes;
  while (at < text.size()) {
    const CodePoint point = decode_utf8(text.substr(at));
    if (before.value < 0x80 && point.value < 0x80 && before.value != '\r') break;
    if (!are_one_cluster(before.value, point.value)) break;
    before = point;
    at += point.bytes;
  }
  return at;
}

constexpr std::size_t longest_cluster = 5;  // bytes that are looked up together

}  // namespace

Charsmap::Charsmap(std::string_view encoded, const std::string& where) {
  const std::optional<std::string> bytes = from_base64(encoded);
  const auto damaged = [&](const char* what) {
    throw_error(ErrorCode::bad_input, where, " ", what, "; the file is damaged");
  };
  if (!bytes || bytes->size() < 4) damaged("is no precompiled map of characters");
  const std::string_view all = *bytes;
  const std::size_t size = little_endian(all);
  if (size % 4 != 0 || size > all.size() - 4 || size == 0) damaged("has an array that does not fit into it");
  for (std::size_t at = 0; at < size; at += 4) units_.push_back(little_endian(all.substr(4 + at)));
  texts_ = all.substr(4 + size);
  if (texts_.empty() || texts_.back() != '\0' || !valid_utf8(texts_)) damaged("has texts that are no UTF-8");
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  std::size_t node = offset_of(units_[0]);
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return {};
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) return {};
    if (!has_leaf(unit)) continue;
    const std::size_t at = units_[node] & 0x7FFFFFFFu;
    if (at >= texts_.size() || (static_cast<unsigned char>(texts_[at]) & 0xC0) == 0x80) return {};
    return std::string_view(texts_).substr(at, texts_.find('\0', at) - at);
  }
  return {};
}

std::string_view Charsmap::of(std::string_view text, std::string& made) const {
  made.clear();
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, first_cluster(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() <= longest_cluster)
      if (const auto whole = find(cluster)) {
        made += *whole;
        continue;
      }
    while (!cluster.empty()) {
      const std::string_view letter = cluster.substr(0, decode_utf8(cluster).bytes);
      made += find(letter).value_or(letter);
      cluster.remove_prefix(letter.size());
    }
  }
  return made;
}

namespace {

// ------------------------------------------------------------------- normal form

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

namespace {

// ------------------------------------------------------------------- normalizer

// Visits the characters of a text, and the bytes that each has in it.
template <class Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    visit(point.value, text.substr(0, point.bytes));
    text.remove_prefix(point.bytes);
  }
}

std::string_view replaced(const ReplaceText& step, std::string_view text, std::string& made) {
  if (text.find(step.from) == text.npos) return text;
  made.clear();
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(step.from), text.size());
    made += text.substr(0, at);
    text.remove_prefix(at);
    std::size_t times = 0;
    while (text.starts_with(step.from)) {
      ++times;
      text.remove_prefix(step.from.size());
      if (!step.runs) break;
    }
    if (times == 0) break;
    made += step.runs && times == 1 ? step.from : step.to;
  }
  return made;
}

std::string_view stripped(const StripSpaces& step, std::string_view text) {
  if (step.left) text.remove_prefix(leading_spaces(text));
  if (step.right) text.remove_suffix(trailing_spaces(text));
  return text;
}

std::string_view lowered(std::string_view text, std::string& made) {
  made.clear();
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (value < 0x80)
      made += value >= 'A' && value <= 'Z' ? static_cast<char>(value - 'A' + 'a') : static_cast<char>(value);
    else if (const std::u32string_view lower = lower_case_of(value); lower.empty())
      made += bytes;
    else
      for (const char32_t letter : lower) append_utf8(made, letter);
  });
  return made;
}

std::string_view without(LetterClass marks, std::string_view text, std::string& made) {
  made.clear();
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (!is_of(marks, value)) made += bytes;
  });
  return made;
}

void append_cleaned(const BertClean& step, char32_t value, std::string_view bytes, std::string& made) {
  if (step.clean && is_of(LetterClass::bert_removed, value)) return;
  if (step.clean && is_of(LetterClass::bert_space, value))
    made += ' ';
  else if (step.chinese && is_of(LetterClass::bert_chinese, value))
    made.append(" ").append(bytes).append(" ");
  else
    made += bytes;
}

// The steps are in BERT's own order.
std::string_view cleaned(const BertClean& step, std::string_view text, std::string& made) {
  static const NormalForm apart(NormalKind::d);
  std::string one, other;
  for_each_character(
      text, [&](char32_t value, std::string_view bytes) { append_cleaned(step, value, bytes, one); });
  std::string_view now = one;
  if (step.accents) {
    std::string form;
    now = without(LetterClass::nonspacing_mark, apart.of(now, form), other);
  }
  if (step.lower) return lowered(now, made);
  made = now;
  return made;
}

struct Applied {
  std::string_view text;
  std::string& made;

  std::string_view operator()(const PrependText& step) const {
    if (text.empty()) return text;
    made = step.text;
    return made += text;
  }
  std::string_view operator()(const ReplaceText& step) const { return replaced(step, text, made); }
  std::string_view operator()(const StripSpaces& step) const { return stripped(step, text); }
  std::string_view operator()(const LowerCase&) const { return lowered(text, made); }
  std::string_view operator()(const StripAccents&) const {
    return without(LetterClass::combining_mark, text, made);
  }
  std::string_view operator()(const BertClean& step) const { return cleaned(step, text, made); }
  std::string_view operator()(const std::shared_ptr<const NormalForm>& form) const {
    return form->of(text, made);
  }
  std::string_view operator()(const std::shared_ptr<const Charsmap>& map) const {
    return map->of(text, made);
  }
};

}  // namespace

// A step that leaves the text as it is leaves it where it is, which may be the other scratch.
std::string_view Normalizer::of(std::string_view text, Scratch& scratch) const {
  for (const Step& step : steps_) {
    const bool in_first =
        text.data() >= scratch[0].data() && text.data() <= scratch[0].data() + scratch[0].size();
    text = std::visit(Applied{text, scratch[in_first ? 1 : 0]}, step);
  }
  return text;
}

bool Normalizer::works_by_letters() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return std::holds_alternative<std::shared_ptr<const NormalForm>>(step);
  });
}

bool Normalizer::may_cut_before(char32_t value) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    const auto* const form = std::get_if<std::shared_ptr<const NormalForm>>(&step);
    return form && !(*form)->is_doubtful(value);
  });
}

bool Normalizer::puts_in_front() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<PrependText>(step); });
}

}  // namespace prun
