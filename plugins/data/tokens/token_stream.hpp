// Holds one long row of tokens, laid out over any number of stretches of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace prun::tokens {

enum class TokenType : std::uint8_t { u8, i8, i16, u16, i32, u32, i64 };

constexpr std::uint64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8: return 1;
    case TokenType::i16:
    case TokenType::u16: return 2;
    case TokenType::i32:
    case TokenType::u32: return 4;
    case TokenType::i64: return 8;
  }
  return 0;
}

// Reads a little-endian number at any alignment. The caller has checked that the bytes are there.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Borrows the memory. Tokens are looked at only when they are read.
class TokenStream {
 public:
  explicit TokenStream(TokenType type) : type_(type) {}

  // Appends `count` tokens that start at a byte of a file. The file's name is for messages.
  void append(const std::string& file, std::span<const std::byte> bytes, std::uint64_t offset,
              std::uint64_t count);
  std::uint64_t tokens() const { return tokens_; }
  // Returns which of the files appended, counted from 0, holds a token.
  std::size_t file_of(std::uint64_t token) const;
  // Throws bad_input when a token does not fit into [0, 2^31).
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* out) const;

 private:
  struct Stretch {
    std::uint64_t first;
    const std::byte* data;
  };
  struct File {
    std::uint64_t first;
    std::string name;
    const std::byte* data;
  };

  void decode(const std::byte* from, std::uint64_t first, std::uint64_t count, std::int32_t* out) const;
  template <class T>
  void decode_as(const std::byte* from, std::uint64_t first, std::uint64_t count, std::int32_t* out) const;
  [[noreturn]] void reject(const std::byte* at, std::uint64_t position, const std::string& value) const;

  TokenType type_;
  std::uint64_t tokens_ = 0;
  std::vector<Stretch> stretches_;
  std::vector<File> files_;
};

}  // namespace prun::tokens
