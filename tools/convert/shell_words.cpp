#include "convert/shell_words.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

using Words = std::vector<std::string>;

constexpr std::size_t most_words = 100'000;
constexpr std::size_t most_expanded = std::size_t{1} << 20;  // bytes that variables put in, all together
constexpr int deepest = 16;                                  // of expansions within expansions

bool name_letter(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }
bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

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

bool names_script(std::string_view word) { return word.ends_with(".py"); }

// Walks through a script, command by command, and keeps what variables hold.
class ShellReader {
 public:
  ShellReader(std::string_view text, std::string_view source)
      : text_(text),
        source_(source),
        variables_(std::make_shared<std::map<std::string, Words>>()),
        expanded_bytes_(std::make_shared<std::size_t>(0)) {}

  ShellCommand read() {
    while (at_ < text_.size()) read_command();
    if (depth_ != 0) fail("an `if`, a loop or a function has no end");
    if (!started_) command_.arguments = std::move(loose_);
    return std::move(command_);
  }

 private:
  // Of what stands within an expansion of another one.
  ShellReader(std::string_view text, const ShellReader& outer)
      : text_(text),
        source_(outer.source_),
        nested_(outer.nested_),
        variables_(outer.variables_),
        expanded_bytes_(outer.expanded_bytes_) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw_error(ErrorCode::bad_input, source_, ", line ",
                1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'), ": ",
                what, "; give prun convert the arguments alone, as a text");
  }

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool starts(std::string_view with) const { return text_.substr(at_).starts_with(with); }

  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  // Blanks, and line ends that a backslash takes away; inside of an array also line ends and comments.
  void skip_blanks(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      if (starts("\\\n") || starts("\\\r\n"))
        at_ = text_.find('\n', at_);
      else if (lines && now() == '#') {
        skip_line();
        --at_;
      } else if (!blank(now()) && !(lines && now() == '\n'))
        return;
    }
  }

  bool ends_command() const {
    return at_ >= text_.size() || now() == '\n' || now() == ';' || now() == '|' || now() == '&' ||
           now() == ')';
  }

  // ----------------------------------------------------------------- expansions

  // The name of a variable at the reader, which is behind a $; empty where there is none.
  std::string read_name() {
    const std::size_t begin = at_;
    if (std::isdigit(static_cast<unsigned char>(now())) || now() == '@' || now() == '*' || now() == '#' ||
        now() == '?')
      return std::string(1, text_[at_++]);
    while (name_letter(now())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Words value_of(const std::string& name, const std::string& as_written) {
    const auto found = variables_->find(name);
    if (found != variables_->end()) return put_in(found->second);
    return name == "@" || name == "*" ? Words() : Words{as_written};
  }

  // Variables that hold others twice grow without end.
  const Words& put_in(const Words& value) {
    for (const std::string& word : value) *expanded_bytes_ += word.size() + 1;
    if (*expanded_bytes_ > most_expanded)
      fail(detail::concat("its variables expand to more than ", most_expanded, " bytes"));
    return value;
  }

  // The text up to the bracket that closes the one that was just opened.
  std::string_view inside(char open, char close) {
    const std::size_t begin = at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (now() == open) ++depth;
      if (now() == close && --depth == 0) return text_.substr(begin, at_++ - begin);
    }
    at_ = begin;
    fail("a bracket is not closed");
  }

  // "NAME", "NAME[@]", "NAME:-text", "NAME-text"
  Words braced(std::string_view inner) {
    std::size_t end = 0;
    while (end < inner.size() && name_letter(inner[end])) ++end;
    const std::string name(inner.substr(0, end));
    std::string_view rest = inner.substr(end);
    const std::string as_written = "${" + std::string(inner) + "}";
    if (rest.empty() || rest == "[@]" || rest == "[*]") return value_of(name, as_written);
    if (rest.starts_with(":-") || rest.starts_with('-')) {
      if (const auto found = variables_->find(name); found != variables_->end()) return put_in(found->second);
      rest.remove_prefix(rest.starts_with(":-") ? 2 : 1);
      return {expanded(rest)};
    }
    return {as_written};
  }

  // The text of a default or of arithmetic, with its own variables put in.
  std::string expanded(std::string_view text) {
    if (++nested_ > deepest) fail(detail::concat("expansions are nested deeper than ", deepest));
    ShellReader inner(text, *this);
    std::string result;
    while (inner.at_ < text.size()) {
      if (inner.now() == '"' || inner.now() == '\'')
        ++inner.at_;
      else if (inner.now() == '$')
        result += join(inner.read_expansion(), " ");
      else
        result += text[inner.at_++];
    }
    --nested_;
    return result;
  }

  // Products and sums of whole numbers.
  std::string arithmetic(std::string_view written) {
    const std::string text = expanded(written);
    std::int64_t sum = 0, product = 1;
    char last = '+', sign = '+';
    std::string number;
    for (const char c : text + "+") {
      if (blank(c)) continue;
      if (name_letter(c)) {
        number += c;
        continue;
      }
      if (const auto named = variables_->find(number); named != variables_->end())
        number = join(put_in(named->second), " ");
      const auto value = recipe::parse_value(recipe::OptionType::integer, number);
      if (!value || (c != '+' && c != '-' && c != '*' && c != '/'))
        return "$((" + std::string(written) + "))";
      const std::int64_t factor = std::get<std::int64_t>(*value);
      if (last == '/' && factor == 0) return "$((" + std::string(written) + "))";
      if (last == '/')
        product /= factor;
      else if (__builtin_mul_overflow(last == '*' ? product : 1, factor, &product))
        fail("a number is too large");
      if (c == '+' || c == '-') {
        if (__builtin_add_overflow(sum, sign == '-' ? -product : product, &sum))
          fail("a number is too large");
        sign = c;
        product = 1;
      }
      last = c;
      number.clear();
    }
    return std::to_string(sum);
  }

  // At a $ or a backquote.
  Words read_expansion() {
    const std::size_t begin = at_;
    if (now() == '`') {
      at_ = std::min(text_.find('`', at_ + 1), text_.size() - 1) + 1;
      return {std::string(text_.substr(begin, at_ - begin))};
    }
    ++at_;
    if (starts("((")) {
      at_ += 2;
      const std::string_view inner = inside('(', ')');
      if (now() == ')') ++at_;
      return {arithmetic(inner)};
    }
    if (now() == '(') {
      ++at_;
      inside('(', ')');
      return {std::string(text_.substr(begin, at_ - begin))};
    }
    if (now() == '{') {
      ++at_;
      return braced(inside('{', '}'));
    }
    const std::string name = read_name();
    return name.empty() ? Words{"$"} : value_of(name, "$" + name);
  }

  // ----------------------------------------------------------------- words

  void read_quoted(std::string& word) {
    const char quote = text_[at_++];
    while (at_ < text_.size() && now() != quote) {
      if (quote == '"' && starts("\\\n"))
        at_ += 2;
      else if (quote == '"' && now() == '\\' && at_ + 1 < text_.size()) {
        word += text_[at_ + 1];
        at_ += 2;
      } else if (quote == '"' && (now() == '$' || now() == '`'))
        word += join(read_expansion(), " ");
      else
        word += text_[at_++];
    }
    if (at_ >= text_.size()) fail("a quote is not closed");
    ++at_;
  }

  // "${NAME[@]}" or "$@": each element is a word of its own.
  std::optional<Words> read_elements() {
    std::size_t end = at_;
    if (starts("\"$@\"")) {
      at_ += 4;
      return Words();
    }
    if (!starts("\"${")) return {};
    for (end += 3; end < text_.size() && name_letter(text_[end]); ++end) {
    }
    if (!text_.substr(end).starts_with("[@]}\"")) return {};
    const auto found = variables_->find(std::string(text_.substr(at_ + 3, end - at_ - 3)));
    at_ = end + 5;
    return found == variables_->end() ? Words() : put_in(found->second);
  }

  // One word as it is written; what expands outside of quotes may be several, or none.
  Words read_word() {
    Words done;
    std::string word;
    bool quoted = false, any = false;
    while (!ends_command() && !blank(now()) && now() != '(') {
      if (starts("\\\n") || starts("\\\r\n")) break;
      if (const std::optional<Words> elements = word.empty() ? read_elements() : std::nullopt) {
        done.insert(done.end(), elements->begin(), elements->end());
      } else if (now() == '"' || now() == '\'') {
        read_quoted(word);
        quoted = any = true;
      } else if (now() == '$' || now() == '`') {
        const Words parts = words_in(join(read_expansion(), " "));
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (i > 0) done.push_back(std::exchange(word, {}));
          word += parts[i];
          any = true;
        }
      } else {
        if (now() == '\\') ++at_;
        if (at_ < text_.size()) word += text_[at_++];
        any = true;
      }
    }
    if (any && (quoted || !word.empty())) done.push_back(word);
    if ((count_ += done.size()) > most_words) fail(detail::concat("it has more than ", most_words, " words"));
    return done;
  }

  // ----------------------------------------------------------------- commands

  // NAME=word, NAME+=word, NAME=( words ). Whether there was one.
  bool read_assignment() {
    const std::size_t begin = at_;
    while (name_letter(now())) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    const bool more = starts("+=");
    if (name.empty() || (!more && now() != '=')) {
      at_ = begin;
      return false;
    }
    at_ += more ? 2 : 1;
    Words value;
    if (now() == '(') {
      for (++at_, skip_blanks(true); now() != ')'; skip_blanks(true)) {
        if (at_ >= text_.size()) fail("a bracket is not closed");
        const std::size_t before = at_;
        for (std::string& word : read_word()) value.push_back(std::move(word));
        if (at_ == before) fail("the array has something that is not read");
      }
      ++at_;
    } else if (!blank(now()) && !ends_command()) {
      value = {join(read_word(), " ")};
    }
    if (depth_ > 0) {
      branched(value);
      return true;
    }
    Words& variable = (*variables_)[name];
    if (!more) variable.clear();
    if (more && variable.size() == 1 && value.size() == 1 && text_[begin + name.size() + 2] != '(')
      variable[0] += value[0];
    else
      variable.insert(variable.end(), value.begin(), value.end());
    return true;
  }

  void branched(const Words& words) {
    for (const std::string& word : words)
      for (std::string& part : words_in(word)) command_.branched.push_back(std::move(part));
  }

  // <<EOF: all lines up to that word are somebody else's.
  void skip_document(std::string word) {
    word.erase(0, word.find_first_not_of("<-'\""));
    while (!word.empty() && (word.back() == '\'' || word.back() == '"')) word.pop_back();
    skip_line();
    while (at_ < text_.size()) {
      const std::size_t begin = ++at_;
      skip_line();
      if (trim(text_.substr(begin, at_ - begin)) == word) return;
    }
  }

  void take_command(Words words) {
    // A command line in quotes, as `sh -c` has it: the first.
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
    if (std::exchange(started_, true)) fail("a second command starts a .py file");
    command_.launcher.assign(words.begin(), script);
    const auto redirected = [](const std::string& word) {
      const std::size_t at = word.find_first_not_of("0123456789&");
      return at != std::string::npos && word[at] == '>';
    };
    command_.arguments.assign(script + 1, std::find_if(script + 1, words.end(), redirected));
  }

  void read_command() {
    skip_blanks(true);
    if (at_ >= text_.size()) return;
    if (ends_command()) {
      ++at_;
      return;
    }
    Words words;
    while (!ends_command()) {
      const std::size_t before = at_;
      if (now() == '#')
        skip_line();
      else if (words.empty() && read_assignment()) {
      } else if (now() == '(')
        ++at_;  // of a function, or a subshell
      else if (starts("<<")) {
        skip_document(std::string(text_.substr(at_, text_.find_first_of(" \n>|", at_) - at_)));
        return;
      } else {
        for (std::string& word : read_word()) words.push_back(std::move(word));
      }
      skip_blanks(false);
      if (at_ == before) fail("something is not read");
      if (words.size() == 1 && (words[0] == "then" || words[0] == "else" || words[0] == "do" ||
                                words[0] == "{" || words[0] == "export"))
        words.clear();
    }
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

  std::string_view text_, source_;
  std::size_t at_ = 0, count_ = 0;
  int depth_ = 0, nested_ = 0;
  bool started_ = false;  // by a .py file
  // Shared by readers of what stands within an expansion.
  std::shared_ptr<std::map<std::string, Words>> variables_;
  std::shared_ptr<std::size_t> expanded_bytes_;
  ShellCommand command_;
  Words loose_;  // words of lines that begin with --
};

}  // namespace

ShellCommand read_shell(std::string_view text, std::string_view source) {
  return ShellReader(text, source).read();
}

bool left_open(std::string_view word) { return word.find_first_of("$<`") != std::string_view::npos; }

}  // namespace prun::convert
