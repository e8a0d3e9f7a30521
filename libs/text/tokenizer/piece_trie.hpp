// Finds the tokens that a text begins with.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.hpp"

namespace prun {

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

}  // namespace prun
