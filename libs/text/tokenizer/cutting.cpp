#include "tokenizer/cutting.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- word splitter
// Each rule tries the alternatives of its expression in their order. An alternative never needs to give back
// more than the last character of a run of spaces, so a cursor that only goes forward is enough.

constexpr std::string_view gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<std::string_view, 7> contractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};

std::size_t contraction(std::string_view text) {
  if (text[0] != '\'') return 0;
  for (const std::string_view ending : contractions)
    if (text.starts_with(ending)) return ending.size();
  return 0;
}

// Upper case too, and the long s, which is an s when case does not count.
std::size_t contraction_in_any_case(std::string_view text) {
  constexpr std::string_view long_s = "'\xC5\xBF";
  if (text[0] != '\'') return 0;
  if (text.starts_with(long_s)) return long_s.size();
  std::array<char, 3> lower{};
  for (std::size_t i = 0; i < lower.size() && i < text.size(); ++i)
    lower[i] = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
  return contraction({lower.data(), std::min(lower.size(), text.size())});
}

bool is_line_end(char32_t value) { return value == '\r' || value == '\n'; }

}  // namespace

std::optional<WordRules> word_rules_of(std::string_view expression) {
  if (expression == gpt2_expression) return WordRules::gpt2;
  if (expression == llama3_expression) return WordRules::llama3;
  if (expression == qwen2_expression) return WordRules::qwen2;
  return {};
}

// Points at one character of a text, its kind, and the next.
class WordSplitter::Cursor {
 public:
  Cursor(const CharacterKinds& kinds, std::string_view text) : kinds_(kinds), text_(text) { look(); }

  bool at_end() const { return at_ == text_.size(); }
  bool is(CharacterKind kind) const { return !at_end() && kind_ == kind; }
  bool is_line_end() const { return !at_end() && prun::is_line_end(value_); }
  char32_t value() const { return value_; }
  std::size_t at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

  void next() {
    at_ += bytes_;
    look();
  }
  // Passes up to `most` characters of a kind; how many there were.
  std::size_t pass(CharacterKind kind, std::size_t most = std::numeric_limits<std::size_t>::max()) {
    std::size_t passed = 0;
    for (; passed < most && is(kind); ++passed) next();
    return passed;
  }
  void pass_line_ends() {
    while (is_line_end()) next();
  }

 private:
  void look() {
    if (at_end()) return;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    const CodePoint point = byte < 0x80 ? CodePoint{byte, 1, true} : decode_utf8(text_.substr(at_));
    value_ = point.value;
    bytes_ = point.bytes;
    kind_ = kinds_.of(value_);
  }

  const CharacterKinds& kinds_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t bytes_ = 0;
  char32_t value_ = 0;
  CharacterKind kind_ = CharacterKind::other;
};

std::size_t WordSplitter::first_word(std::string_view text) const {
  switch (rules_) {
    case WordRules::gpt2: return gpt2_word(text);
    case WordRules::llama3: return llama3_word(text, 3);
    case WordRules::qwen2: return llama3_word(text, 1);
    case WordRules::spaces: break;
  }
  return text.size();
}

std::size_t WordSplitter::gpt2_word(std::string_view text) const {
  if (const std::size_t length = contraction(text)) return length;
  Cursor cursor(*kinds_, text);
  if (cursor.value() == ' ') cursor.next();
  if (cursor.pass(CharacterKind::letter) || cursor.pass(CharacterKind::number) ||
      cursor.pass(CharacterKind::other))
    return cursor.at();
  return spaces(text);
}

std::size_t WordSplitter::llama3_word(std::string_view text, std::size_t longest_number) const {
  if (const std::size_t length = contraction_in_any_case(text)) return length;
  Cursor cursor(*kinds_, text);
  if (cursor.pass(CharacterKind::number, longest_number)) return cursor.at();
  Cursor letters = cursor;  // one character that is neither letter, number nor line end may stand in front
  if (!letters.is(CharacterKind::letter) && !letters.is_line_end()) letters.next();
  if (letters.pass(CharacterKind::letter)) return letters.at();
  if (cursor.value() == ' ') cursor.next();
  if (cursor.pass(CharacterKind::other)) {
    cursor.pass_line_ends();
    return cursor.at();
  }
  Cursor run(*kinds_, text);
  std::size_t last_line_end = 0;  // where the run's last one ends
  for (; run.is(CharacterKind::space); run.next())
    if (run.is_line_end()) last_line_end = run.at() + run.bytes();
  return last_line_end ? last_line_end : spaces(text);
}

// Words hold a space at their start alone, but for runs of spaces and, by the rules of Llama 3, line ends
// behind other characters. GPT-2 takes a run's last space from it, the others all up to its last line end.
bool WordSplitter::may_cut(std::string_view text, std::size_t at) const {
  const auto is_space = [&](std::size_t i) {
    const CodePoint point = decode_utf8(text.substr(i));
    return !point.valid || kinds_->of(point.value) == CharacterKind::space;
  };
  const auto is_plain = [&](std::size_t i) { return text[i] > ' ' && text[i] < '\x7F'; };
  if (at == 0 || at + 1 >= text.size()) return false;
  if (text[at] == ' ') return is_plain(at - 1) && is_plain(at + 1);
  if (rules_ == WordRules::spaces) return false;
  if (rules_ == WordRules::gpt2) return text[at] == '\n' && !is_space(at + 1);
  return text[at - 1] == '\n' && !is_space(at);
}

// A run of spaces: all of it at the end of the text; else without its last one, which belongs to what
// follows, unless it is the only one.
std::size_t WordSplitter::spaces(std::string_view text) const {
  Cursor cursor(*kinds_, text);
  std::size_t last = 0;
  for (; cursor.is(CharacterKind::space); cursor.next()) last = cursor.at();
  return cursor.at_end() || last == 0 ? cursor.at() : last;
}

namespace {

// ------------------------------------------------------------------- cutting

using Emit = std::vector<std::string_view>;

// Runs of characters of which `kind` says the same. Where it says that one stands alone, it does.
template <class Kind>
void add_runs(std::string_view text, Emit& out, int alone, Kind&& kind) {
  std::size_t begin = 0;
  int before = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text.substr(at));
    const int now = kind(point.value);
    if (at > begin && (now != before || now == alone)) {
      out.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    before = now;
    at += point.bytes;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
}

bool is_space(const CharacterKinds& kinds, char32_t value) { return kinds.of(value) == CharacterKind::space; }

// Is one of the text's pieces between the places of `at`, or one of these places.
struct Part {
  std::string_view text;
  bool match = false;
};
std::vector<Part> parts_at(std::string_view text, const WordPattern& pattern) {
  std::vector<Part> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<std::size_t> length = pattern.match(text, at);
    if (!length) {
      at += decode_utf8(text.substr(at)).bytes;
      continue;
    }
    if (begin < at) parts.push_back({text.substr(begin, at - begin)});
    parts.push_back({text.substr(at, *length), true});
    begin = at += *length;
  }
  if (begin < text.size()) parts.push_back({text.substr(begin)});
  return parts;
}

std::vector<Part> parts_at_punctuation(std::string_view text) {
  const auto is_match = [](std::string_view piece) {
    return is_of(LetterClass::bert_punctuation, decode_utf8(piece).value);
  };
  Emit pieces;
  add_runs(text, pieces, 1,
           [](char32_t value) { return is_of(LetterClass::bert_punctuation, value) ? 1 : 0; });
  std::vector<Part> parts;
  for (const std::string_view piece : pieces) parts.push_back({piece, is_match(piece)});
  return parts;
}

std::vector<Part> parts_at(std::string_view text, std::string_view at) {
  std::vector<Part> parts;
  for (;;) {
    const std::size_t found = text.find(at);
    if (const std::string_view before = text.substr(0, found); !before.empty()) parts.push_back({before});
    if (found == text.npos) return parts;
    parts.push_back({text.substr(found, at.size()), true});
    text.remove_prefix(found + at.size());
  }
}

std::string_view joined(std::string_view a, std::string_view b) { return {a.data(), a.size() + b.size()}; }

// A match joins what lies next to it, unless that is one that has joined already.
void add_joined(const std::vector<Part>& parts, bool previous, Emit& out) {
  const std::size_t begin = out.size();
  bool was_match = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[previous ? i : parts.size() - 1 - i];
    if (part.match && !was_match && out.size() > begin)
      out.back() = previous ? joined(out.back(), part.text) : joined(part.text, out.back());
    else
      out.push_back(part.text);
    was_match = part.match;
  }
  if (!previous) std::reverse(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end());
}

// Matches next to each other are one, and so is what lies between.
void add_merged(const std::vector<Part>& parts, Emit& out) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i > 0 && parts[i].match == parts[i - 1].match)
      out.back() = joined(out.back(), parts[i].text);
    else
      out.push_back(parts[i].text);
}

void add_cut_at(const CutAt& step, std::string_view text, Emit& out) {
  std::vector<Part> parts = step.pattern        ? parts_at(text, *step.pattern)
                            : step.text.empty() ? parts_at_punctuation(text)
                                                : parts_at(text, step.text);
  for (Part& part : parts) part.match = part.match != step.inverted;
  using Keep = CutAt::Keep;
  if (step.keep == Keep::with_previous || step.keep == Keep::with_next)
    return add_joined(parts, step.keep == Keep::with_previous, out);
  if (step.keep == Keep::contiguous) return add_merged(parts, out);
  for (const Part& part : parts)
    if (!part.match || step.keep == Keep::isolated) out.push_back(part.text);
}

// Collects what one step makes of a text. Spaces that are dropped are runs that are not kept.
struct Pieces {
  std::string_view text;
  bool first;
  std::string& marked;
  Emit& out;

  static const CharacterKinds& kinds() { return CharacterKinds::shared(); }

  void operator()(const CutWords&) const {}
  void operator()(const CutDigits& step) const {
    add_runs(text, out, step.single ? 1 : -1,
             [](char32_t value) { return kinds().of(value) == CharacterKind::number ? 1 : 0; });
  }
  void operator()(const CutSpaces&) const {
    add_runs(text, out, -1, [](char32_t value) { return is_space(kinds(), value) ? 1 : 0; });
    drop_spaces();
  }
  void operator()(const CutBert&) const {
    add_runs(text, out, 2, [](char32_t value) {
      return is_space(kinds(), value) ? 1 : is_of(LetterClass::bert_punctuation, value) ? 2 : 0;
    });
    drop_spaces();
  }
  void operator()(const CutWordRuns&) const {
    add_runs(text, out, -1, [](char32_t value) {
      return is_space(kinds(), value) ? 1 : is_of(LetterClass::word, value) ? 2 : 0;
    });
    drop_spaces();
  }
  void operator()(const PutSpace&) const {
    marked = text.starts_with(' ') ? "" : " ";
    marked += text;
    out.push_back(marked);
  }
  void operator()(const CutAt& step) const { add_cut_at(step, text, out); }
  void operator()(const MarkSpaces& step) const {
    using Front = MarkSpaces::Front;
    marked.clear();
    const bool has_front = text.starts_with(' ') || text.starts_with(step.mark);
    if (!has_front && (step.front == Front::always || (step.front == Front::first && first)))
      marked += step.mark;
    for (const char byte : text)
      if (byte == ' ')
        marked += step.mark;
      else
        marked += byte;
    if (step.cut)
      add_joined(parts_at(marked, step.mark), false, out);
    else
      out.push_back(marked);
  }

 private:
  void drop_spaces() const {
    std::erase_if(out, [](std::string_view piece) { return is_space(kinds(), decode_utf8(piece).value); });
  }
};

}  // namespace

Cutter::Cutter(const std::vector<CuttingStep>& steps) : steps_(steps), marked_(steps.size()) {
  for (const CuttingStep& step : steps) {
    const CutWords* const words = std::get_if<CutWords>(&step);
    splitters_.emplace_back(words ? words->rules : WordRules::gpt2);
  }
}

void Cutter::add_pieces(std::size_t step, std::string_view text, bool first) {
  Emit made;
  std::visit(Pieces{text, first, marked_[step], made}, steps_[step]);
  for (const std::string_view piece : made) {
    const bool at_front = piece.data() == text.data() || piece.data() == marked_[step].data();
    pieces_.push_back({piece, first && at_front});
  }
}

}  // namespace prun
