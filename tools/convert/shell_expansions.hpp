// Expands what follows a $ in a shell script: variables, defaults, whole-number arithmetic. Parts that only a
// run would know stay as they are written.
#pragma once

#include <map>
#include <optional>

#include "convert/shell_text.hpp"

namespace prun::convert {

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

}  // namespace prun::convert
