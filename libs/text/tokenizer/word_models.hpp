// Turns a word into tokens, by the kind of model that a tokenizer.json has.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.hpp"
#include "tokenizer/piece_trie.hpp"

namespace prun {

enum class ModelKind : std::uint8_t {
  byte_pairs,    // BPE of bytes
  letter_pairs,  // BPE of characters
  unigram,
  word_pieces
};

// Holds a model's section of the file. Which members count follows from the kind.
struct WordModel {
  ModelKind kind = ModelKind::byte_pairs;
  std::unordered_map<std::string, TokenId> whole;  // BPE: words that are tokens without being merged
  MergeTable merges{0};
  std::array<TokenId, 256> bytes{};  // the token of each byte, also of those that are no character's
  bool byte_fallback = false;        // unknown characters become the tokens of their bytes
  bool fuse_unknown = false;         // unknown characters in a row become one token
  TokenId unknown = -1;
  PieceTrie pieces;            // by the texts in the file
  std::vector<double> scores;  // unigram: by token
  double unknown_score = 0;
  std::string continuing;   // word pieces: what stands in front of all but a word's first
  std::size_t longest = 0;  // characters of a word that is not unknown
};

// Is for one thread.
class WordEncoder {
 public:
  // Borrows the model.
  explicit WordEncoder(const WordModel& model) : model_(model), merger_(model.merges) {}
  // Appends the tokens of a word that is not empty.
  void append(std::string_view word, std::vector<TokenId>& out);

 private:
  // Describes the best way to end at a byte of the word.
  struct Best {
    TokenId token = -1;
    double score = 0;
    std::size_t begin = none;
    static constexpr std::size_t none = ~std::size_t{0};
  };

  void set_bytes(std::string_view word);
  void set_letters(std::string_view word);
  void append_unigram(std::string_view word, std::vector<TokenId>& out);
  void find_best(std::string_view word);
  void append_unknown(std::string_view text, std::vector<TokenId>& out) const;
  void append_pieces(std::string_view word, std::vector<TokenId>& out) const;

  const WordModel& model_;
  WordMerger merger_;
  std::vector<TokenId> symbols_;
  std::vector<Best> best_;            // by byte
  std::vector<std::size_t> borders_;  // of the best way, from the end
};

}  // namespace prun
