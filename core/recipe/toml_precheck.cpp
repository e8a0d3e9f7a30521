// Walks a TOML text outside its strings and comments.
#include "recipe/toml_precheck.hpp"

#include <algorithm>
#include <string>

#include "base/text.hpp"

namespace prun::recipe {

namespace {

bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

bool starts_key(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const bool digit = c >= '0' && c <= '9';
  return letter || digit || c == '-' || c == '_' || c == '"' || c == '\'';
}

class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  // Returns the offset of what is refused, and sets reason().
  std::optional<std::size_t> run() {
    while (at_ < text_.size() && reason_.empty()) {
      const char c = text_[at_];
      if (c == '#')
        skip_comment();
      else if (c == '"' || c == '\'')
        skip_string(c);
      else
        take(c);
    }
    return reason_.empty() ? std::nullopt : std::optional(at_);
  }

  std::string_view reason() const { return reason_; }

 private:
  void take(char c) {
    if (beyond_ascii(c))
      return refuse(
          at_, "TOML syntax: a character beyond ASCII stands outside quotes; put the name or text in them");
    if (c == '.' && ++key_depth_ > max_key_depth) return refuse(at_, "key nests deeper than 16 tables");
    if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) key_depth_ = 1;
    if (c == '[' && open_ == 0 && line_start_) check_header();
    if (!reason_.empty()) return;
    if (c == '[' || c == '{') ++open_;
    if (c == ']' || c == '}') open_ = std::max(open_ - 1, 0);
    if (c == '\n')
      line_start_ = true;
    else if (c != ' ' && c != '\t')
      line_start_ = false;
    ++at_;
  }

  void check_header() {
    std::size_t name = at_ + 1;
    if (text_.substr(name).starts_with('[')) ++name;
    name = text_.find_first_not_of(" \t", name);
    if (name == std::string_view::npos || text_[name] == ']' || starts_key(text_[name])) return;
    refuse(name,
           "TOML syntax, table header: expected a name of letters, digits, '_' and '-', or one in quotes");
  }

  void refuse(std::size_t at, std::string_view reason) {
    at_ = at;
    reason_ = reason;
  }

  void skip_comment() {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }

  void skip_string(char quote) {
    line_start_ = false;
    if (at_ > 0 && std::string_view(" \t\r\n=,.[{").find(text_[at_ - 1]) == std::string_view::npos)
      return refuse(at_, "TOML syntax: a quote stands within a name or value; put all of it in quotes");
    const std::string three(3, quote);
    if (text_.substr(at_).starts_with(three)) return skip_long_string(quote, three);
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        return;
      }
      if (escapes(quote)) ++at_;
    }
  }

  void skip_long_string(char quote, std::string_view three) {
    for (at_ += 3; at_ < text_.size(); ++at_) {
      if (quote == '"' && text_[at_] == '\\') check_continued_line();
      if (!reason_.empty()) return;
      if (escapes(quote))
        ++at_;
      else if (text_.substr(at_).starts_with(three)) {
        at_ += 3;
        // The last quotes of the text itself may touch the closing ones.
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      }
    }
  }

  void check_continued_line() {
    const std::size_t next = text_.find_first_not_of(" \t\r\n\v\f", at_ + 1);
    if (next != std::string_view::npos && beyond_ascii(text_[next]))
      refuse(next, "after a backslash that continues a line, the text must go on with an ASCII character");
  }

  bool escapes(char quote) const {
    return quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n';
  }

  std::string_view text_;
  std::string_view reason_;
  std::size_t at_ = 0;
  int key_depth_ = 1;
  int open_ = 0;  // number of open brackets and braces
  bool line_start_ = true;
};

}  // namespace

std::optional<Refusal> precheck_toml(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  Walk walk(text);
  const std::optional<std::size_t> found = walk.run();
  if (!found) return std::nullopt;
  Refusal refusal{1, 1, walk.reason()};
  for (std::size_t i = 0; i < *found;) {
    const bool newline = text[i] == '\n';
    refusal.line += newline ? 1 : 0;
    refusal.column = newline ? 1 : refusal.column + 1;
    i += decode_utf8(text.substr(i)).bytes;
  }
  return refusal;
}

}  // namespace prun::recipe
