// Points at a place in the text of a shell script that is being read.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "prun/error.hpp"

namespace prun::convert {

using Words = std::vector<std::string>;

inline bool name_letter(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }
inline bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Splits words at blanks and line ends.
Words words_in(std::string_view text);

class ShellText {
 public:
  ShellText(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  // Returns another text, which is part of this one.
  ShellText within(std::string_view text) const { return {text, source_}; }
  [[noreturn]] void fail(std::string_view what) const;

  bool at_end() const { return at_ >= text_.size(); }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool starts(std::string_view with) const { return text_.substr(at_).starts_with(with); }
  // Says whether a line goes on in the next one.
  bool continues() const { return starts("\\\n") || starts("\\\r\n"); }
  bool ends_command() const {
    return at_end() || now() == '\n' || now() == ';' || now() == '|' || now() == '&' || now() == ')';
  }

  std::size_t at() const { return at_; }
  void go_to(std::size_t at) { at_ = at; }
  void skip(std::size_t letters = 1) { at_ += letters; }
  char take() { return text_[at_++]; }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  std::string_view rest() const { return text_.substr(at_); }
  // Takes the letters of a name, from here on.
  std::string_view take_name();
  void skip_line();
  // Skips blanks, and line ends that a backslash removes; inside an array also line ends and comments.
  void skip_blanks(bool lines);
  // Returns the text up to the bracket that closes the one that was just opened.
  std::string_view inside(char open, char close);

 private:
  std::string_view text_, source_;
  std::size_t at_ = 0;
};

}  // namespace prun::convert
