#include "convert/shell_text.hpp"

namespace prun::convert {

Words words_in(std::string_view text) {
  Words words;
  for (std::size_t i = 0; i < text.size();) {
    while (i < text.size() && (blank(text[i]) || text[i] == '\n')) ++i;
    const std::size_t begin = i;
    while (i < text.size() && !blank(text[i]) && text[i] != '\n') ++i;
    if (i > begin) words.emplace_back(text.substr(begin, i - begin));
  }
  return words;
}

void ShellText::fail(std::string_view what) const {
  throw_error(ErrorCode::bad_input, source_, ", line ",
              1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'), ": ",
              what, "; give prun convert the arguments alone, as a text");
}

std::string_view ShellText::take_name() {
  const std::size_t begin = at_;
  while (name_letter(now())) ++at_;
  return since(begin);
}

void ShellText::skip_line() {
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
}

void ShellText::skip_blanks(bool lines) {
  for (; at_ < text_.size(); ++at_) {
    if (continues())
      at_ = text_.find('\n', at_);
    else if (lines && now() == '#') {
      skip_line();
      --at_;
    } else if (!blank(now()) && !(lines && now() == '\n'))
      return;
  }
}

std::string_view ShellText::inside(char open, char close) {
  const std::size_t begin = at_;
  for (int depth = 1; at_ < text_.size(); ++at_) {
    if (now() == open) ++depth;
    if (now() == close && --depth == 0) return text_.substr(begin, at_++ - begin);
  }
  at_ = begin;
  fail("a bracket is not closed");
}

}  // namespace prun::convert
