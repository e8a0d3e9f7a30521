// Maps a file into memory for reading.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace prun::tokens {

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
