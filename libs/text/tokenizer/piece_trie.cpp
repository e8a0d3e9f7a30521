#include "tokenizer/piece_trie.hpp"

#include <algorithm>

namespace prun {
namespace {

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

}  // namespace prun
