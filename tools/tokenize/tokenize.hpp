// Turns text into a token set, on all cores, for `prun tokenize`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/durable_file.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/word_models.hpp"

namespace prun {

// ------------------------------------------------------------------- tokenize

struct TokenizeRequest {
  std::vector<std::filesystem::path> files;  // as for DocumentReader
  std::filesystem::path prefix;              // that of the .bin and the .idx
  std::string key = "text";                  // that of the text in a line of JSON
  TokenId end_of_text = 0;                   // ends each document
  bool replace = false;  // turns bytes that are not UTF-8 into U+FFFD one by one; else they are refused
  int threads = 1;
  std::size_t piece_bytes = std::size_t{1} << 20;  // the part of a file that a thread takes at a time
};

struct TokenizeResult {
  std::int64_t documents = 0, tokens = 0;
  std::uint64_t bytes = 0;     // counts those read
  std::uint64_t empty = 0;     // counts documents without text, which are left out
  std::uint64_t replaced = 0;  // counts bytes
  int token_bytes = 0;
};

// A document's tokens are the tokenizer's prefix, those of its text, and end-of-text unless the text ended
// with it. Documents come in the order of the files, whatever the threads. `progress` gets the number of
// bytes done; one thread calls it at a time. Throws bad_input with file and line, or byte, of text that
// cannot be read.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeRequest& request,
                        const std::function<void(std::uint64_t)>& progress = {});

// ------------------------------------------------------------------- token set
// Writes tokens as the sets that Megatron and the data plugin `tokens` read: a .bin of tokens, and a .idx
// that says where documents begin.

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
