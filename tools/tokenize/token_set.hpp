// Writes tokens as the sets that Megatron and the data plugin `tokens` read: a .bin of tokens, and a .idx
// that says where documents begin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/durable_file.hpp"
#include "tokenizer/bpe.hpp"

namespace prun {

class TokenSetWriter {
 public:
  // Writes `prefix`.bin and `prefix`.idx, which must not exist. Tokens are below `vocab`; where that fits
  // into 16 bits, they take 2 bytes each, else 4.
  TokenSetWriter(const std::filesystem::path& prefix, TokenId vocab);

  // Appends to the document under way.
  void append(std::span<const TokenId> tokens);
  void end_document();
  // Makes both files appear, the .idx last. Nothing appears without it.
  void commit();

  std::int64_t documents() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t tokens() const { return tokens_; }
  int token_bytes() const { return narrow_ ? 2 : 4; }

 private:
  void write_index();

  std::filesystem::path prefix_;
  bool narrow_;
  DurableFile bin_, idx_;
  std::vector<std::byte> buffer_;
  std::vector<std::int32_t> lengths_;  // those of documents
  std::int64_t tokens_ = 0, length_ = 0;
};

}  // namespace prun
