#include "convert/shell_words.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "convert/word_reader.hpp"

namespace prun::convert {
namespace {

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
