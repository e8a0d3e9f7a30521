// Byte-pair encoding of one word: its bytes or characters are tokens at first, and as long as two neighbours
// are a known pair, the pair of lowest rank becomes one token, the leftmost of these first.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

namespace prun {

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

}  // namespace prun
