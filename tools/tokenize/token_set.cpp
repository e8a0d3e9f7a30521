// Writes the index: magic, version, token type, counts; each document's length; where it begins; which
// sequences are documents: all.
#include "tokenize/token_set.hpp"

#include <cstring>
#include <limits>

#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

fs::path with_ending(const fs::path& prefix, const char* ending) {
  fs::path file = prefix;
  file += ending;
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(file, ignored)))
    throw_error(ErrorCode::bad_input, file.string(), " exists; remove it, or write to another place");
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw_error(ErrorCode::bad_input, folder.string(), " is not a folder; make it first");
  clear_dead_copies(file);
  return file;
}

// Writes numbers to a file, little-endian, in large pieces.
class NumberWriter {
 public:
  explicit NumberWriter(DurableFile& file) : file_(file) {}

  template <class T>
  void put(T number) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof number);
    std::memcpy(bytes_.data() + at, &number, sizeof number);
    if (bytes_.size() >= piece) flush();
  }
  void flush() {
    file_.write(bytes_);
    bytes_.clear();
  }

 private:
  static constexpr std::size_t piece = 1 << 20;
  DurableFile& file_;
  std::vector<std::byte> bytes_;
};

}  // namespace

TokenSetWriter::TokenSetWriter(const fs::path& prefix, TokenId vocab)
    : prefix_(prefix),
      narrow_(vocab <= 1 << 16),
      bin_(with_ending(prefix, ".bin")),
      idx_(with_ending(prefix, ".idx")) {}

void TokenSetWriter::append(std::span<const TokenId> tokens) {
  const auto width = static_cast<std::size_t>(token_bytes());
  buffer_.resize(tokens.size() * width);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::memcpy(buffer_.data() + i * width, &tokens[i], width);  // the low bytes come first
  bin_.write(buffer_);
  tokens_ += static_cast<std::int64_t>(tokens.size());
  length_ += static_cast<std::int64_t>(tokens.size());
  if (length_ > std::numeric_limits<std::int32_t>::max())
    throw_error(ErrorCode::bad_input, prefix_.string(), ": document ", documents(), " has more than ",
                std::numeric_limits<std::int32_t>::max(), " tokens; give it as several");
}

void TokenSetWriter::end_document() {
  lengths_.push_back(static_cast<std::int32_t>(length_));
  length_ = 0;
}

void TokenSetWriter::commit() {
  PRUN_CHECK(length_ == 0, "a document of ", length_, " tokens has no end");
  write_index();
  RemovedAtEnd without_idx([&] {
    bin_.commit();
    return bin_.target();
  });
  try {
    without_idx.leave([&] { idx_.commit(); });
  } catch (...) {
    std::error_code ignored;  // the first trouble is the one to tell
    fs::remove(bin_.target(), ignored);
    throw;
  }
}

void TokenSetWriter::write_index() {
  constexpr std::uint8_t i32 = 4, u16 = 8;  // are Megatron's numbers of types
  idx_.write(std::string_view("MMIDIDX\0\0", 9));
  NumberWriter out(idx_);
  out.put(std::uint64_t{1});
  out.put(narrow_ ? u16 : i32);
  out.put(static_cast<std::uint64_t>(documents()));
  out.put(static_cast<std::uint64_t>(documents() + 1));
  for (const std::int32_t length : lengths_) out.put(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    out.put(offset);
    offset += std::int64_t{length} * token_bytes();
  }
  for (std::int64_t i = 0; i <= documents(); ++i) out.put(i);
  out.flush();
}

}  // namespace prun
