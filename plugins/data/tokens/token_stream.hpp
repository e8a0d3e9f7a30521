// Holds one long row of tokens, laid out over any number of stretches of memory.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace prun::tokens {

// ------------------------------------------------------------------- token stream

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

// ------------------------------------------------------------------- mmap file
// Maps a file into memory for reading.

// Nothing is read until the bytes are looked at, and then no more than these: reading ahead, which the kernel
// does by up to megabytes, would be waste where windows lie all over a large file. Reading by pread instead
// would keep a descriptor open for each of a thousand shards, and an index would have to be copied or cached.
//
// Memory beyond the end of a file that was cut off reads as zeros up to the end of the page and raises SIGBUS
// after it. So bytes are looked at under a Reading, which turns the signal into zeros as well, and count only
// after expect_whole() has returned.
class MappedFile {
 public:
  // Throws not_found, bad_input for anything but a regular file, storage for other failures.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  // The bytes stay where they are when the object moves.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // From here on the file is read from front to back: reading ahead pays.
  void expect_scan() const;
  // Throws storage when the file has become shorter or a part of it could not be read.
  void expect_whole() const;

 private:
  friend class Reading;
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  mutable volatile std::sig_atomic_t unreadable_ = 0;  // set by the signal's handler
};

// While a Reading lives, this thread may read the bytes of these files even where the file has none any more.
class Reading {
 public:
  explicit Reading(const std::vector<MappedFile>& files);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  // Is called from the handler: it returns whether the address has zeros now.
  static bool patch(const void* address);
};

// Starts to fetch bytes that are about to be read, all at once instead of page by page. It is a hint for any
// memory.
void expect_read(std::span<const std::byte> bytes);

}  // namespace prun::tokens
