#include "chat/tokens.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "prun/error.hpp"
#include "tokenizer/normalizer.hpp"

namespace prun::chat {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : name_(name) {
    for (std::size_t i = 0; i < text.size(); ++i)  // line ends are one letter
      if (text[i] != '\r')
        all_ += text[i];
      else if (i + 1 == text.size() || text[i + 1] != '\n')
        all_ += '\n';
    if (all_.ends_with('\n')) all_.pop_back();
    text_ = all_;
  }

  std::vector<Word> read() {
    while (at_ < text_.size()) read_text();
    add(WordKind::end, "");
    return std::move(words_);
  }

 private:
  void add(WordKind kind, std::string_view text) { words_.push_back({kind, line_, std::string(text)}); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", line_, ": ", what);
  }
  bool is_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void pass(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  // Reads up to what begins something, and then that.
  void read_text() {
    std::size_t open = at_;
    while (open < text_.size() &&
           !(text_[open] == '{' && open + 1 < text_.size() &&
             (text_[open + 1] == '{' || text_[open + 1] == '%' || text_[open + 1] == '#')))
      ++open;
    std::string_view text = text_.substr(at_, open - at_);
    if (open < text_.size()) {
      const char kind = text_[open + 1], control = open + 2 < text_.size() ? text_[open + 2] : ' ';
      if (control == '-')
        while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
      else if (kind != '{' && control != '+')
        text = without_indent(text);
    }
    if (!text.empty()) add(WordKind::text, text);
    pass(open - at_);
    if (at_ == text_.size()) return;
    const char kind = text_[at_ + 1];
    pass(2);
    if (is_at("-") || is_at("+")) pass(1);
    if (kind == '#') return read_comment();
    read_code(kind == '{');
  }

  // Returns a text without the indent of a line that has nothing else before.
  std::string_view without_indent(std::string_view text) const {
    std::size_t end = text.size();
    while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
    const bool at_line_start = end > 0 ? text[end - 1] == '\n' : at_ == 0 || text_[at_ - 1] == '\n';
    return at_line_start ? text.substr(0, end) : text;
  }

  void read_comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == text_.npos) refuse("a comment does not end");
    const bool strips = text_[end - 1] == '-', keeps = text_[end - 1] == '+';
    pass(end + 2 - at_);
    after_block(strips, keeps);
  }

  void after_block(bool strips, bool keeps) {
    if (strips)
      while (at_ < text_.size() && is_blank(text_[at_])) pass(1);
    else if (!keeps && is_at("\n"))
      pass(1);
  }

  void read_code(bool output) {
    add(output ? WordKind::begin_output : WordKind::begin_block, "");
    const std::string_view end = output ? "}}" : "%}";
    int open = 0;  // brackets
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) pass(1);
      if (at_ == text_.size()) refuse(output ? "{{ does not end" : "{% does not end");
      const bool strips = is_at("-"), keeps = is_at("+");
      const std::string_view behind = text_.substr(at_ + (strips || keeps ? 1 : 0));
      if (open == 0 && behind.starts_with(end)) {
        pass((strips || keeps ? 1u : 0u) + 2);
        add(output ? WordKind::end_output : WordKind::end_block, "");
        return output ? after_block(strips, true) : after_block(strips, keeps);
      }
      read_word();
      const std::string& sign = words_.back().text;
      if (words_.back().kind != WordKind::sign) continue;
      if (sign == "(" || sign == "[" || sign == "{") ++open;
      if (sign == ")" || sign == "]" || sign == "}") --open;
    }
  }

  void read_word() {
    const char c = text_[at_];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_name_letter(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name_letter(text_[end])) ++end;
      add(WordKind::name, text_.substr(at_, end - at_));
      return pass(end - at_);
    }
    constexpr std::array<std::string_view, 25> signs = {"==", "!=", "<=", ">=", "//", "**", "(", ")", "[",
                                                        "]",  "{",  "}",  ",",  ":",  ".",  "|", "+", "-",
                                                        "*",  "/",  "%",  "~",  "=",  "<",  ">"};
    for (const std::string_view sign : signs)
      if (is_at(sign)) {
        add(WordKind::sign, sign);
        return pass(sign.size());
      }
    refuse(std::string("'") + c + "' is not a sign that prun knows in templates");
  }

  std::size_t digits_from(std::size_t at) const {
    while (at < text_.size() && is_digit(text_[at])) ++at;
    return at;
  }

  // A number behind a point is an item of what stands before it.
  void read_number() {
    std::size_t end = digits_from(at_);
    const std::size_t whole = end;
    const bool is_item = !words_.empty() && words_.back().kind == WordKind::sign && words_.back().text == ".";
    if (!is_item && end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1]))
      end = digits_from(end + 1);
    if (!is_item && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const bool has_sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
      if (const std::size_t last = digits_from(end + (has_sign ? 2 : 1)); is_digit(text_[last - 1]))
        end = last;
    }
    if (end < text_.size() && is_name_letter(text_[end]))
      refuse("'" + std::string(text_.substr(at_, end + 1 - at_)) + "' begins no number");
    add(end > whole ? WordKind::fraction : WordKind::number, text_.substr(at_, end - at_));
    pass(end - at_);
  }

  void read_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote)
      if (text_[i] != '\\')
        value += text_[i++];
      else if (++i < text_.size())
        i = read_escape(i, value);
    if (i >= text_.size()) refuse("a text in quotes does not end");
    add(WordKind::string, value);
    pass(i + 1 - at_);
  }

  // As Python has them; a letter that is none keeps what stands in front of it. Returns where it ends.
  std::size_t read_escape(std::size_t at, std::string& to) const {
    const char letter = text_[at];
    constexpr std::string_view letters = "ntr\\'\"abfv", meant = "\n\t\r\\'\"\a\b\f\v";
    if (const std::size_t found = letters.find(letter); found != letters.npos) {
      to += meant[found];
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      return read_code_point(at + 1, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, to);
    } else if (is_digit(letter) || letter == 'N') {
      refuse(std::string("'\\") + letter + "' is not an escape that prun knows in templates");
    } else if (letter != '\n') {
      to += '\\';
      to += letter;
    }
    return at + 1;
  }

  std::size_t read_code_point(std::size_t at, std::size_t digits, std::string& to) const {
    const std::string_view text = text_.substr(at, digits);
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + digits || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000))
      refuse("an escape is no character");
    append_utf8(to, value);
    return at + digits;
  }

  const std::string& name_;
  std::string all_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Word> words_;
};

}  // namespace

std::vector<Word> words_of_template(std::string_view text, const std::string& name) {
  return Lexer(text, name).read();
}

}  // namespace prun::chat
