// A file mapped into memory for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace prun::tokens {

// Nothing is read until the bytes are, and then no more than these: reading ahead, which the kernel does by
// up to megabytes, would be waste where windows lie all over a large file. The file must keep its size while
// it is mapped: touching a part that has been cut off kills the process, as with every mapping.
class MappedFile {
 public:
  // Throws not_found, bad_input for what is no regular file, storage for the rest.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  // Stays where it is when the object moves.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // From here on the file is read from front to back: reading ahead pays.
  void expect_scan() const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Starts to fetch bytes that are about to be read, all at once instead of page by page. A hint for any
// memory.
void expect_read(std::span<const std::byte> bytes);

}  // namespace prun::tokens
