// It keeps a linked list of symbols and a heap of pairs, so that words of any length take O(n log n).
#include "tokenizer/bpe.hpp"

#include <bit>

#include "prun/error.hpp"

namespace prun {

MergeTable::MergeTable(std::size_t merges) : mask_(std::bit_ceil(2 * merges + 2) - 1), slots_(mask_ + 1) {}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t i = slot_of(key);
  while (slots_[i].key != empty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

void WordMerger::append(std::span<const TokenId> word, std::vector<TokenId>& out) {
  PRUN_CHECK(word.size() < (std::size_t{1} << 31), "a word of ", word.size(), " tokens");
  symbols_.clear();
  const auto count = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols_.push_back({word[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  for (std::int32_t i = 0; i < count; ++i) propose(i);
  while (!candidates_.empty()) {
    const Candidate candidate = candidates_.top();
    candidates_.pop();
    merge(candidate.left, candidate.token);
  }
  for (std::int32_t i = count ? 0 : -1; i >= 0; i = symbols_[static_cast<std::size_t>(i)].after)
    out.push_back(symbols_[static_cast<std::size_t>(i)].token);
}

// Puts a symbol and the one after it into the queue, where they are a pair.
void WordMerger::propose(std::int32_t left) {
  const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.after < 0) return;
  const MergeTable::Merge found =
      merges_.find(symbol.token, symbols_[static_cast<std::size_t>(symbol.after)].token);
  if (found.token >= 0) candidates_.push({found.rank, left, found.token});
}

// Does what a candidate said, unless its symbols are not what they were.
void WordMerger::merge(std::int32_t left, TokenId token) {
  Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.token < 0 || symbol.after < 0) return;
  Symbol& right = symbols_[static_cast<std::size_t>(symbol.after)];
  if (merges_.find(symbol.token, right.token).token != token) return;
  symbol.token = token;
  symbol.after = right.after;
  right.token = -1;
  if (symbol.after >= 0) symbols_[static_cast<std::size_t>(symbol.after)].before = left;
  if (symbol.before >= 0) propose(symbol.before);
  propose(left);
}

}  // namespace prun
