#include "tokenizer/cutting.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

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
