// Reads the words of a shell script as commands get them: without quotes, and expanded.
#pragma once

#include "convert/shell_expansions.hpp"

namespace prun::convert {

class WordReader {
 public:
  WordReader(ShellText& text, ShellVariables& variables) : text_(text), expansions_(text, variables) {}

  // One word as it is written; what expands outside of quotes may be several, or none.
  Words read();

 private:
  void read_quoted(std::string& word);
  bool read_expanded(Words& done, std::string& word);

  ShellText& text_;
  ShellExpansions expansions_;
  std::size_t count_ = 0;
};

}  // namespace prun::convert
