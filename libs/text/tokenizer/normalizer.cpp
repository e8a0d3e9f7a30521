#include "tokenizer/normalizer.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "tokenizer/characters.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

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
