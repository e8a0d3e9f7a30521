// Reads the `.idx` of a Megatron `.bin/.idx` pair: a header, then per sequence its length and its place.
//
//   0  MMIDIDX 00 00     9  u64 version = 1     17  u8 token type    18  u64 S sequences   26  u64 D bounds
//   34  i32 length [S]   i64 byte offset in the .bin [S]   i64 document bound [D]   optional: i8 mode [S]
//
// The writer lays sequences one after the other, so offsets are the running sum of lengths and the set is
// simply the .bin from end to end. This is checked for every sequence of an index of up to `scan_limit`
// sequences. In a larger one, places all over it are checked at open and every sequence that a window touches
// when it is read: opening then costs the same at any size. Offsets in any other order are followed, at some
// 32 bytes of memory for each gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "token_stream.hpp"

namespace prun::tokens {

// ------------------------------------------------------------------- megatron index

struct MegatronHeader {
  TokenType type = TokenType::u16;
  std::uint64_t sequences = 0;
  std::uint64_t bounds = 0;  // the number of documents + 1
};

// Checks the header against the size of the index. `name` is the file's, for messages.
MegatronHeader parse_megatron_header(const std::string& name, std::span<const std::byte> index);

// Is a run of tokens without a gap: a byte of the .bin, and how many tokens follow.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t tokens = 0;
};

class MegatronIndex {
 public:
  static constexpr std::uint64_t default_scan_limit = 16'000'000;

  // Borrows the index's bytes. Throws bad_input for anything that cannot be true of a .bin of this size.
  MegatronIndex(std::string name, std::span<const std::byte> index, std::uint64_t bin_bytes,
                std::uint64_t scan_limit = default_scan_limit);

  TokenType type() const { return header_.type; }
  std::uint64_t sequences() const { return header_.sequences; }
  std::uint64_t tokens() const { return tokens_; }
  // Returns the runs of tokens in the order of the index.
  const std::vector<Extent>& extents() const { return extents_; }
  bool fully_checked() const { return fully_checked_; }
  // Must be called before these tokens are read; it costs nothing when all was checked at open.
  void check_window(std::uint64_t first, std::uint64_t count) const;

 private:
  std::uint64_t offset_of(std::uint64_t sequence) const;  // does not check it
  Extent sequence_at(std::uint64_t sequence) const;       // checks it
  std::uint64_t end_of(const Extent& extent) const { return extent.offset + extent.tokens * token_bytes_; }
  [[noreturn]] void reject_place(std::uint64_t sequence, std::int32_t length, std::uint64_t offset) const;
  [[noreturn]] void reject(std::uint64_t sequence, const std::string& what) const;

  void check_bounds() const;
  bool sampled_places_follow() const;
  bool block_follows(std::uint64_t first, std::uint64_t count) const;
  void scan();
  void check_filled(std::uint64_t end) const;
  // Returns the last sequence whose offset is not beyond the byte, if offsets rise.
  std::uint64_t last_starting_by(std::uint64_t byte) const;

  std::string name_;
  const std::byte* lengths_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* bounds_ = nullptr;
  std::uint64_t bin_bytes_ = 0;
  MegatronHeader header_;
  std::uint64_t token_bytes_ = 0;
  std::uint64_t tokens_ = 0;
  std::vector<Extent> extents_;
  bool fully_checked_ = true;
};

// ------------------------------------------------------------------- llmc file
// Reads a `.bin` of llm.c: it has 256 numbers of type i32, then the tokens.
//
//   magic 20240520, version 1: u16 tokens (GPT-2)     magic 20240801, version 7: u32 tokens (Llama 3)
//   The third number is the count of tokens; they fill the file exactly.

inline constexpr std::uint64_t llmc_header_bytes = 1024;

struct LlmcHeader {
  TokenType type = TokenType::u16;
  std::uint64_t tokens = 0;
};

// Reads the header only. `file` is the whole file, `name` is for messages. Throws bad_input.
LlmcHeader parse_llmc_header(const std::string& name, std::span<const std::byte> file);

}  // namespace prun::tokens
