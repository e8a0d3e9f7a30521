#include "convert/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- shell text
// Points at a place in the text of a shell script that is being read.

using Words = std::vector<std::string>;

inline bool name_letter(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }
inline bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

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

// Splits words at blanks and line ends.
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

}  // namespace

// ------------------------------------------------------------------- whole sum

bool WholeSum::add(std::string_view number, char behind) {
  const auto value = recipe::parse_value(recipe::OptionType::integer, std::string(number));
  if (!value || (behind != '+' && behind != '-' && behind != '*' && behind != '/')) return false;
  const std::int64_t factor = std::get<std::int64_t>(*value);
  if (last_ == '/') {
    if (factor == 0) return false;
    if (factor == -1)
      too_large_ |= __builtin_sub_overflow(std::int64_t{0}, product_, &product_);
    else
      product_ /= factor;
  } else {
    too_large_ |= __builtin_mul_overflow(last_ == '*' ? product_ : 1, factor, &product_);
  }
  if (behind == '+' || behind == '-') {
    too_large_ |= sign_ == '-' ? __builtin_sub_overflow(sum_, product_, &sum_)
                               : __builtin_add_overflow(sum_, product_, &sum_);
    sign_ = behind;
    product_ = 1;
  }
  last_ = behind;
  return true;
}

namespace {

// ------------------------------------------------------------------- shell expansions
// Expands what follows a $ in a shell script: variables, defaults, whole-number arithmetic. Parts that only a
// run would know stay as they are written.

class ShellVariables {
 public:
  // Returns a variable, to be set or added to.
  Words& operator[](const std::string& name) { return values_[name]; }
  // Returns the words of the name at that place of a script; null: nothing is known of it. Variables that
  // hold others twice grow without end, and fail.
  const Words* find(const std::string& name, const ShellText& at);

 private:
  std::map<std::string, Words> values_;
  std::size_t expanded_bytes_ = 0;
};

class ShellExpansions {
 public:
  ShellExpansions(ShellText& text, ShellVariables& variables) : ShellExpansions(text, variables, 0) {}

  // Reads an expansion, at a $ or a backquote.
  Words read();
  // Reads "${NAME[@]}" or "$@", in quotes: each element is a word of its own.
  std::optional<Words> read_elements();

 private:
  // Expands the text inside an expansion of another one.
  ShellExpansions(ShellText& text, ShellVariables& variables, int nested)
      : text_(text), variables_(variables), nested_(nested) {}

  std::string read_name();
  Words value_of(const std::string& name, const std::string& as_written);
  Words braced(std::string_view inner);
  std::string expanded(std::string_view text);
  std::string arithmetic(std::string_view written);

  ShellText& text_;
  ShellVariables& variables_;
  int nested_;
};

constexpr std::size_t most_expanded = std::size_t{1} << 20;  // bytes that variables put in, all together
constexpr int deepest = 16;                                  // expansions within expansions

const Words* ShellVariables::find(const std::string& name, const ShellText& at) {
  const auto found = values_.find(name);
  if (found == values_.end()) return nullptr;
  for (const std::string& word : found->second) expanded_bytes_ += word.size() + 1;
  if (expanded_bytes_ > most_expanded)
    at.fail(detail::concat("its variables expand to more than ", most_expanded, " bytes"));
  return &found->second;
}

// Reads the name of a variable after a $; it is empty where there is none.
std::string ShellExpansions::read_name() {
  if (std::isdigit(static_cast<unsigned char>(text_.now())) || text_.now() == '@' || text_.now() == '*' ||
      text_.now() == '#' || text_.now() == '?')
    return std::string(1, text_.take());
  return std::string(text_.take_name());
}

Words ShellExpansions::value_of(const std::string& name, const std::string& as_written) {
  if (const Words* const value = variables_.find(name, text_)) return *value;
  return name == "@" || name == "*" ? Words() : Words{as_written};
}

// Expands "NAME", "NAME[@]", "NAME:-text" or "NAME-text".
Words ShellExpansions::braced(std::string_view inner) {
  std::size_t end = 0;
  while (end < inner.size() && name_letter(inner[end])) ++end;
  const std::string name(inner.substr(0, end));
  std::string_view rest = inner.substr(end);
  const std::string as_written = "${" + std::string(inner) + "}";
  if (rest.empty() || rest == "[@]" || rest == "[*]") return value_of(name, as_written);
  if (rest.starts_with(":-") || rest.starts_with('-')) {
    if (const Words* const value = variables_.find(name, text_)) return *value;
    rest.remove_prefix(rest.starts_with(":-") ? 2 : 1);
    return {expanded(rest)};
  }
  return {as_written};
}

// Returns the text of a default or of arithmetic, with its own variables put in.
std::string ShellExpansions::expanded(std::string_view text) {
  if (++nested_ > deepest) text_.fail(detail::concat("expansions are nested deeper than ", deepest));
  ShellText inner = text_.within(text);
  ShellExpansions expansions(inner, variables_, nested_);
  std::string result;
  while (!inner.at_end()) {
    if (inner.now() == '"' || inner.now() == '\'')
      inner.skip();
    else if (inner.now() == '$')
      result += join(expansions.read(), " ");
    else
      result += inner.take();
  }
  --nested_;
  return result;
}

std::string ShellExpansions::arithmetic(std::string_view written) {
  WholeSum sum;
  std::string number;
  for (const char c : expanded(written) + "+") {
    if (blank(c)) continue;
    if (name_letter(c)) {
      number += c;
      continue;
    }
    if (const Words* const value = variables_.find(number, text_)) number = join(*value, " ");
    if (!sum.add(number, c)) return "$((" + std::string(written) + "))";
    if (sum.too_large()) text_.fail("a number is too large");
    number.clear();
  }
  return std::to_string(sum.value());
}

Words ShellExpansions::read() {
  const std::size_t begin = text_.at();
  if (text_.take() == '`') {
    const std::size_t length = text_.rest().find('`');
    text_.skip(std::min(length, text_.rest().size() - 1) + 1);
    return {std::string(text_.since(begin))};
  }
  if (text_.starts("((")) {
    text_.skip(2);
    const std::string_view inner = text_.inside('(', ')');
    if (text_.now() == ')') text_.skip();
    return {arithmetic(inner)};
  }
  if (text_.now() == '(') {
    text_.skip();
    text_.inside('(', ')');
    return {std::string(text_.since(begin))};
  }
  if (text_.now() == '{') {
    text_.skip();
    return braced(text_.inside('{', '}'));
  }
  const std::string name = read_name();
  return name.empty() ? Words{"$"} : value_of(name, "$" + name);
}

std::optional<Words> ShellExpansions::read_elements() {
  if (text_.starts("\"$@\"")) {
    text_.skip(4);
    return Words();
  }
  if (!text_.starts("\"${")) return {};
  const std::size_t begin = text_.at();
  text_.skip(3);
  const std::string name(text_.take_name());
  if (!text_.starts("[@]}\"")) {
    text_.go_to(begin);
    return {};
  }
  text_.skip(5);
  const Words* const value = variables_.find(name, text_);
  return value ? *value : Words();
}

// ------------------------------------------------------------------- word reader
// Reads the words of a shell script in the form that commands get: without quotes, and expanded.

class WordReader {
 public:
  WordReader(ShellText& text, ShellVariables& variables) : text_(text), expansions_(text, variables) {}

  // Reads one written word; one that expands outside of quotes may give several, or none.
  Words read();

 private:
  void read_quoted(std::string& word);
  bool read_expanded(Words& done, std::string& word);

  ShellText& text_;
  ShellExpansions expansions_;
  std::size_t count_ = 0;
};

constexpr std::size_t most_words = 100'000;

void WordReader::read_quoted(std::string& word) {
  const char quote = text_.take();
  while (!text_.at_end() && text_.now() != quote) {
    if (quote == '"' && text_.starts("\\\n"))
      text_.skip(2);
    else if (quote == '"' && text_.now() == '\\' && text_.rest().size() > 1) {
      text_.skip();
      word += text_.take();
    } else if (quote == '"' && (text_.now() == '$' || text_.now() == '`'))
      word += join(expansions_.read(), " ");
    else
      word += text_.take();
  }
  if (text_.at_end()) text_.fail("a quote is not closed");
  text_.skip();
}

// The last of the words that it expands to goes on. Returns whether there are any.
bool WordReader::read_expanded(Words& done, std::string& word) {
  const Words parts = words_in(join(expansions_.read(), " "));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) done.push_back(std::exchange(word, {}));
    word += parts[i];
  }
  return !parts.empty();
}

Words WordReader::read() {
  Words done;
  std::string word;
  bool quoted = false, any = false;
  while (!text_.ends_command() && !blank(text_.now()) && text_.now() != '(') {
    if (text_.continues()) break;
    if (const std::optional<Words> elements = word.empty() ? expansions_.read_elements() : std::nullopt) {
      done.insert(done.end(), elements->begin(), elements->end());
    } else if (text_.now() == '"' || text_.now() == '\'') {
      read_quoted(word);
      quoted = any = true;
    } else if (text_.now() == '$' || text_.now() == '`') {
      any |= read_expanded(done, word);
    } else {
      if (text_.now() == '\\') text_.skip();
      if (!text_.at_end()) word += text_.take();
      any = true;
    }
  }
  if (any && (quoted || !word.empty())) done.push_back(word);
  if ((count_ += done.size()) > most_words)
    text_.fail(detail::concat("it has more than ", most_words, " words"));
  return done;
}

// ------------------------------------------------------------------- shell words

bool names_script(std::string_view word) { return word.ends_with(".py"); }

// Walks through a script, command by command, and keeps the values of variables.
class ShellReader {
 public:
  ShellReader(std::string_view text, std::string_view source)
      : text_(text, source), words_(text_, variables_) {}

  ShellCommand read() {
    while (!text_.at_end()) read_command();
    if (depth_ != 0) text_.fail("an `if`, a loop or a function has no end");
    if (!started_) command_.arguments = std::move(loose_);
    return std::move(command_);
  }

 private:
  // Reads NAME=word, NAME+=word or NAME=( words ). Returns whether there was one.
  bool read_assignment() {
    const std::size_t begin = text_.at();
    const std::string name(text_.take_name());
    const bool more = text_.starts("+=");
    if (name.empty() || (!more && text_.now() != '=')) {
      text_.go_to(begin);
      return false;
    }
    text_.skip(more ? 2 : 1);
    const bool array = text_.now() == '(';
    Words value;
    if (array)
      value = read_array();
    else if (!blank(text_.now()) && !text_.ends_command())
      value = {join(words_.read(), " ")};
    if (depth_ > 0) {
      branched(value);
      return true;
    }
    Words& variable = variables_[name];
    if (!more) variable.clear();
    if (more && variable.size() == 1 && value.size() == 1 && !array)
      variable[0] += value[0];
    else
      variable.insert(variable.end(), value.begin(), value.end());
    return true;
  }

  Words read_array() {
    Words value;
    for (text_.skip(), text_.skip_blanks(true); text_.now() != ')'; text_.skip_blanks(true)) {
      if (text_.at_end()) text_.fail("a bracket is not closed");
      const std::size_t before = text_.at();
      for (std::string& word : words_.read()) value.push_back(std::move(word));
      if (text_.at() == before) text_.fail("the array has something that is not read");
    }
    text_.skip();
    return value;
  }

  void branched(const Words& words) {
    for (const std::string& word : words)
      for (std::string& part : words_in(word)) command_.branched.push_back(std::move(part));
  }

  // Skips <<EOF: lines up to that word are not the shell's.
  void skip_document(std::string word) {
    word.erase(0, word.find_first_not_of("<-'\""));
    while (!word.empty() && (word.back() == '\'' || word.back() == '"')) word.pop_back();
    text_.skip_line();
    while (!text_.at_end()) {
      text_.skip();
      const std::size_t begin = text_.at();
      text_.skip_line();
      if (trim(text_.since(begin)) == word) return;
    }
  }

  void take_command(Words words) {
    // A command line may be in quotes, for `sh -c`: it is the first word that has a script in it.
    const auto quoted = std::find_if(words.begin(), words.end(), [](const std::string& word) {
      return word.find(".py ") != std::string::npos;
    });
    if (quoted != words.end()) {
      const Words inner = words_in(*quoted);
      words.insert(words.erase(quoted), inner.begin(), inner.end());
    }
    const auto script = std::find_if(words.begin(), words.end(), names_script);
    if (script == words.end()) {
      if (!words.empty() && words[0].starts_with("--"))
        loose_.insert(loose_.end(), words.begin(), words.end());
      return;
    }
    if (std::exchange(started_, true)) text_.fail("a second command starts a .py file");
    command_.launcher.assign(words.begin(), script);
    const auto redirected = [](const std::string& word) {
      const std::size_t at = word.find_first_not_of("0123456789&");
      return at != std::string::npos && word[at] == '>';
    };
    command_.arguments.assign(script + 1, std::find_if(script + 1, words.end(), redirected));
  }

  // Reads a command that ends at a line end, a ; or an operator. Returns nothing for one that only sets
  // variables.
  Words read_simple_command() {
    Words words;
    while (!text_.ends_command()) {
      const std::size_t before = text_.at();
      if (text_.now() == '#')
        text_.skip_line();
      else if (words.empty() && read_assignment()) {
      } else if (text_.now() == '(')
        text_.skip();  // begins a function, or a subshell
      else if (text_.starts("<<")) {
        skip_document(std::string(text_.rest().substr(0, text_.rest().find_first_of(" \n>|"))));
        return {};
      } else {
        for (std::string& word : words_.read()) words.push_back(std::move(word));
      }
      text_.skip_blanks(false);
      if (text_.at() == before) text_.fail("something is not read");
      if (words.size() == 1 && (words[0] == "then" || words[0] == "else" || words[0] == "do" ||
                                words[0] == "{" || words[0] == "export"))
        words.clear();
    }
    return words;
  }

  void read_command() {
    text_.skip_blanks(true);
    if (text_.at_end()) return;
    if (text_.ends_command()) {
      text_.skip();
      return;
    }
    Words words = read_simple_command();
    if (words.empty()) return;
    static const std::set<std::string> opening = {"if", "for", "while", "case", "until"},
                                       closing = {"fi", "done", "esac"};
    if (opening.count(words[0]) != 0)
      ++depth_;
    else if (closing.count(words[0]) != 0)
      --depth_;
    else if (depth_ > 0)
      branched(words);
    else
      take_command(std::move(words));
  }

  ShellText text_;
  ShellVariables variables_;
  WordReader words_;
  int depth_ = 0;
  bool started_ = false;  // set by a .py file
  ShellCommand command_;
  Words loose_;  // are words of lines that begin with --
};

}  // namespace

ShellCommand read_shell(std::string_view text, std::string_view source) {
  return ShellReader(text, source).read();
}

bool left_open(std::string_view word) { return word.find_first_of("$<`") != std::string_view::npos; }

}  // namespace prun::convert
