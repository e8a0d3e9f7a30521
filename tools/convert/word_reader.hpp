// Reads the words of a shell script in the form that commands get: without quotes, and expanded.
#pragma once

#include "convert/shell_expansions.hpp"

namespace prun::convert {

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

}  // namespace prun::convert
