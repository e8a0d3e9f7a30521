// Matches the expressions by which a tokenizer.json cuts texts: the part of Oniguruma's language that these
// are made of, with what it tries first. What is not part of it is refused by its name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/letters.hpp"

namespace prun {

// Characters by category, and by ranges.
struct CharacterSet {
  std::uint16_t categories = 0;  // a bit each
  bool negated = false;
  std::vector<std::pair<char32_t, char32_t>> ranges;

  bool has(char32_t value, Category category) const;
};

class WordPattern {
 public:
  // Throws bad_input, with `where` as the expression's name, for what prun does not have, and for an
  // expression that matches an empty text.
  WordPattern(std::string_view expression, const std::string& where);

  // Returns the bytes of a text that match at a place; nothing where none do. The text is valid UTF-8. Throws
  // bad_input where it takes too many steps.
  std::optional<std::size_t> match(std::string_view text, std::size_t at) const;
  // Says whether a word begins at every space between two letters of ASCII.
  bool begins_at_spaces() const { return begins_at_spaces_; }

  // Is a part of the expression, by what comes next.
  struct Node {
    enum class Kind : std::uint8_t { characters, choice, ahead };
    Kind kind = Kind::characters;
    CharacterSet set = {};
    std::array<bool, 128> ascii{};  // those of `set`
    std::size_t least = 1, most = 1;
    bool lazy = false, keeps = false;         // takes few first; gives nothing back
    bool negated = false;                     // of ahead
    std::vector<std::int32_t> branches = {};  // where each begins
    std::int32_t next = -1;                   // negative: the match ends
  };

 private:
  class Matcher;
  std::vector<Node> nodes_;
  std::int32_t first_ = -1;
  bool begins_at_spaces_ = false;
};

}  // namespace prun
