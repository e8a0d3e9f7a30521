// Turns a word into tokens, by the kind of model that a tokenizer.json has.
#pragma once

#include <array>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- bpe
// Byte-pair encoding of one word: its bytes or characters are tokens at first, and as long as two neighbours
// are a known pair, the pair of lowest rank becomes one token, the leftmost of these first.

using TokenId = std::int32_t;

// Looks up what two tokens become, by the pair.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId token = -1;  // none where negative
  };

  explicit MergeTable(std::size_t merges);
  // The last of equal pairs counts.
  void set(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == empty) return {};
    }
  }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = empty;
    Merge merge;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }

  std::size_t mask_;
  std::vector<Slot> slots_;  // at most half of them taken
};

// Merges words; keeps its memory between them.
class WordMerger {
 public:
  // Borrows the merges.
  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}
  // Appends what the tokens of a word's bytes or characters become.
  void append(std::span<const TokenId> word, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId token;               // negative once it is part of the one before
    std::int32_t before, after;  // its neighbours; negative at the ends
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;  // symbol
    TokenId token;      // what it becomes
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  void propose(std::int32_t left);
  void merge(std::int32_t left, TokenId token);

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

// ------------------------------------------------------------------- piece trie
// Finds the tokens that a text begins with.

class PieceTrie {
 public:
  PieceTrie() = default;
  // Stores tokens by their texts; those without are passed over. Texts differ from each other.
  explicit PieceTrie(std::span<const std::string> tokens);

  // Calls visit(id, bytes) for each token that the text begins with, the shortest first, behind what leads to
  // `from`.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit&& visit, TokenId from = 0) const {
    for (std::size_t at = 0; at < text.size(); ++at) {
      from = step(from, text[at]);
      if (from < 0) return;
      if (const TokenId id = ids_[static_cast<std::size_t>(from)]; id >= 0) visit(id, at + 1);
    }
  }
  // Returns where a text leads to; negative where no token begins with it.
  TokenId node_of(std::string_view text) const;
  // Returns the token of exactly this text; negative where there is none.
  TokenId find(std::string_view text) const;

 private:
  TokenId step(TokenId node, char byte) const {
    return steps_.find(node, static_cast<unsigned char>(byte)).token;
  }

  MergeTable steps_{0};       // node and byte to node
  std::vector<TokenId> ids_;  // by node: its token, or negative
};

// ------------------------------------------------------------------- word models

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
