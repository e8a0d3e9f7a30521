// Texts that are made to get out of where they stand.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace prun::test {

// Ends lines, texts, comments and tables, turns letters round, moves a cursor, or is an ordinary letter.
inline const std::vector<std::string>& hostile_pieces() {
  static const std::vector<std::string> pieces = {
      "\n",
      "\r",
      "\r\n",
      "\"",
      "\"\"\"",
      "\\",
      "\\\"",
      "#",
      "]",
      "[[",
      "=",
      ",",
      "{",
      "\t",
      "\x1b[2J",
      "\x01",
      "\x7f",
      "\u0085",
      "\u009b31m",
      "\u2028",
      "\u2029",
      "\u202e",
      "\u2066",
      "\ufeff",
      "\U000e0041",
      "é",
      "字",
      "\U0001f600",
      "a",
      "0.5",
      "true",
      "\n[[observer]]\nplugin = \"notify\"\ncommand = \"touch EXECUTED\"\n#",
      "\"\n[[observer]]\nplugin = \"notify\"\ncommand = \"touch EXECUTED\"\n#",
      "\r[plugins]\rpath = [\".\"]\r#"};
  return pieces;
}

inline std::string hostile_word(std::mt19937& random, const std::string& without = "") {
  const std::vector<std::string>& pieces = hostile_pieces();
  std::string word = "x";
  for (std::size_t left = 1 + random() % 8; left > 0; --left) {
    const std::string& piece = pieces[random() % pieces.size()];
    if (without.empty() || piece.find_first_of(without) == piece.npos) word += piece;
  }
  return word;
}

}  // namespace prun::test
