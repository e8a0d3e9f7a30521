// Encodes texts one after the other and remembers the words it has met. One thread uses it at a time.
#pragma once

#include <unordered_map>

#include "tokenizer/tokenizer.hpp"

namespace prun {

class Encoder {
 public:
  // Borrows the tokenizer.
  explicit Encoder(const Tokenizer& tokenizer);
  // Appends the text's tokens. Throws bad_input for what is not UTF-8.
  void append(std::string_view text, std::vector<TokenId>& out);

 private:
  // Holds added tokens by their texts, and by first byte which lengths there are, the longest first.
  struct Starts {
    std::unordered_map<std::string_view, const AddedToken*> tokens;
    std::array<std::vector<std::size_t>, 256> lengths;
  };

  // Holds a short word's tokens, in one line of the processor's cache.
  struct Memo {
    static constexpr std::size_t longest = 26, most = 9;
    std::uint8_t bytes = 0, count = 0;
    char word[longest];
    TokenId tokens[most];
  };

  static const AddedToken* match(const Starts& starts, std::string_view text);
  void append_between(std::size_t which, std::string_view text, bool first, std::vector<TokenId>& out);
  void append_behind(std::size_t which, std::string_view text, bool first, std::vector<TokenId>& out);
  void append_word(std::string_view word, std::vector<TokenId>& out);

  const TokenizerTables& tables_;
  Cutter cutter_;
  WordEncoder words_;
  std::array<Starts, 2> starts_;  // as they are, then those that are normalized
  std::vector<Memo> memo_;        // by the word's hash
  Normalizer::Scratch normal_;
};

}  // namespace prun
