#include "tokenizer/word_models.hpp"

#include <algorithm>
#include <bit>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- bpe
// It keeps a linked list of symbols and a heap of pairs, so that words of any length take O(n log n).

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

namespace {

// ------------------------------------------------------------------- piece trie

// Counts, for texts in order, bytes with which none before them begins.
std::size_t nodes_of(const std::vector<std::string_view>& texts) {
  std::size_t nodes = 0;
  std::string_view before;
  for (const std::string_view text : texts) {
    const auto differ = std::mismatch(text.begin(), text.end(), before.begin(), before.end());
    nodes += static_cast<std::size_t>(text.end() - differ.first);
    before = text;
  }
  return nodes;
}

}  // namespace

PieceTrie::PieceTrie(std::span<const std::string> tokens) : ids_(1, -1) {
  std::vector<std::string_view> texts(tokens.begin(), tokens.end());
  std::sort(texts.begin(), texts.end());
  steps_ = MergeTable(nodes_of(texts));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    TokenId node = 0;
    for (const char byte : tokens[id]) {
      TokenId next = step(node, byte);
      if (next < 0) {
        next = static_cast<TokenId>(ids_.size());
        ids_.push_back(-1);
        steps_.set(node, static_cast<unsigned char>(byte), {0, next});
      }
      node = next;
    }
    if (node != 0) ids_[static_cast<std::size_t>(node)] = static_cast<TokenId>(id);
  }
}

TokenId PieceTrie::node_of(std::string_view text) const {
  TokenId node = 0;
  for (const char byte : text)
    if ((node = step(node, byte)) < 0) break;
  return node;
}

TokenId PieceTrie::find(std::string_view text) const {
  const TokenId node = text.empty() ? -1 : node_of(text);
  return node < 0 ? -1 : ids_[static_cast<std::size_t>(node)];
}

// ------------------------------------------------------------------- word models

void WordEncoder::append(std::string_view word, std::vector<TokenId>& out) {
  if (model_.kind == ModelKind::unigram) return append_unigram(word, out);
  if (model_.kind == ModelKind::word_pieces) return append_pieces(word, out);
  if (!model_.whole.empty())
    if (const auto found = model_.whole.find(std::string(word)); found != model_.whole.end())
      return out.push_back(found->second);
  symbols_.clear();
  if (model_.kind == ModelKind::byte_pairs)
    set_bytes(word);
  else
    set_letters(word);
  merger_.append(symbols_, out);
}

void WordEncoder::set_bytes(std::string_view word) {
  for (const char byte : word) symbols_.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
}

// Sets each character, or where it is no token its bytes, or the unknown token.
void WordEncoder::set_letters(std::string_view word) {
  bool unknown = false;
  while (!word.empty()) {
    const std::string_view letter = word.substr(0, decode_utf8(word).bytes);
    word.remove_prefix(letter.size());
    const TokenId token = model_.pieces.find(letter);
    const bool was_unknown = unknown;
    unknown = token < 0 && !model_.byte_fallback;
    if (token >= 0)
      symbols_.push_back(token);
    else if (model_.byte_fallback)
      set_bytes(letter);
    else if (!was_unknown || !model_.fuse_unknown)
      symbols_.push_back(model_.unknown);
  }
}

// --- unigram: of all ways to write the word as tokens the one with the largest sum of scores

void WordEncoder::find_best(std::string_view word) {
  best_.assign(word.size() + 1, {});
  const auto offer = [&](std::size_t begin, std::size_t end, TokenId token, double score) {
    Best& best = best_[end];
    const double sum = score + best_[begin].score;
    if (best.begin == Best::none || sum > best.score) best = {token, sum, begin};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t letter = decode_utf8(word.substr(at)).bytes;
    bool has_letter = false;
    model_.pieces.for_each_prefix(word.substr(at), [&](TokenId token, std::size_t bytes) {
      offer(at, at + bytes, token, model_.scores[static_cast<std::size_t>(token)]);
      has_letter = has_letter || bytes == letter;
    });
    if (!has_letter) offer(at, at + letter, model_.unknown, model_.unknown_score);
    at += letter;
  }
}

// Unknown characters in a row are one text, which is a token or unknown.
void WordEncoder::append_unigram(std::string_view word, std::vector<TokenId>& out) {
  find_best(word);
  borders_.clear();
  for (std::size_t at = word.size(); at > 0; at = best_[at].begin) borders_.push_back(at);
  std::size_t begin = 0;
  for (std::size_t i = borders_.size(); i-- > 0;) {
    const std::size_t end = borders_[i];
    if (best_[end].token != model_.unknown) {
      out.push_back(best_[end].token);
    } else if (i > 0 && best_[borders_[i - 1]].token == model_.unknown) {
      continue;
    } else {
      append_unknown(word.substr(begin, end - begin), out);
    }
    begin = end;
  }
}

void WordEncoder::append_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const TokenId known = model_.pieces.find(text);
  if (known < 0 && model_.byte_fallback)
    for (const char byte : text) out.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
  else
    out.push_back(known < 0 ? model_.unknown : known);
}

// --- word pieces: the longest that there is, again and again; a word that does not come out is unknown

void WordEncoder::append_pieces(std::string_view word, std::vector<TokenId>& out) const {
  const std::size_t before = out.size();
  const auto letters = static_cast<std::size_t>(std::count_if(
      word.begin(), word.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
  const TokenId inside = model_.pieces.node_of(model_.continuing);
  bool first = true, known = letters <= model_.longest;
  while (known && !word.empty()) {
    TokenId token = -1;
    std::size_t bytes = 0;
    if (first || inside >= 0)
      model_.pieces.for_each_prefix(
          word,
          [&](TokenId found, std::size_t of) {
            token = found;
            bytes = of;
          },
          first ? 0 : inside);
    known = token >= 0;
    if (known) out.push_back(token);
    word.remove_prefix(bytes);
    first = false;
  }
  if (known) return;
  out.resize(before);
  out.push_back(model_.unknown);
}

}  // namespace prun
