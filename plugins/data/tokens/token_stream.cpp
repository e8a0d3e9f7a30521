// Finds the pieces under a window and widens their tokens to i32.
#include "token_stream.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "prun/error.hpp"

namespace prun::tokens {
namespace {

// ------------------------------------------------------------------- mmap file
// Implements mapping by open, fstat and mmap.

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::storage;
  throw_error(code, path, ": cannot be ", action, " (", std::strerror(error),
              "); check the path and its permissions");
}

class Descriptor {
 public:
  // Opening does not block, so that a named pipe is refused rather than waited for.
  explicit Descriptor(const std::string& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (number_ < 0) fail(path, "opened", errno);
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Names what this thread reads. This storage model lets a handler look at it: nothing is allocated there.
__attribute__((tls_model("initial-exec"))) thread_local const std::vector<MappedFile>* being_read = nullptr;

struct sigaction action_before {};

// A fault that is not ours happens again under the action there was before, and ends as it would have.
void on_bus_error(int signal, siginfo_t* info, void*) {
  if (!Reading::patch(info->si_addr)) ::sigaction(signal, &action_before, nullptr);
}

void catch_bus_errors() {
  static const int installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, &action_before);
  }();
  PRUN_CHECK(installed == 0, "SIGBUS cannot be handled");
}

std::uintptr_t page_size() {
  static const auto size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) fail(path_, "examined", errno);
  if (!S_ISREG(facts.st_mode))
    throw_error(ErrorCode::bad_input, path_, ": is not a regular file; name the token file itself");
  size_ = static_cast<std::size_t>(facts.st_size);
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
  if (size_ == 0) return;  // an empty file cannot be mapped
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (mapped == MAP_FAILED) fail(path_, "mapped into memory", errno);
  data_ = static_cast<const std::byte*>(mapped);
  ::madvise(mapped, size_, MADV_RANDOM);
}

void MappedFile::expect_scan() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

// Another file under the name does not matter: the file that is mapped lives on.
void MappedFile::expect_whole() const {
  struct stat facts {};
  const bool here = ::stat(path_.c_str(), &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_;
  if (here && static_cast<std::size_t>(facts.st_size) < size_)
    throw_error(ErrorCode::storage, path_, ": has shrunk from ", size_, " to ", facts.st_size,
                " bytes since it was opened; leave token files alone while a run reads them");
  if (unreadable_ != 0)
    throw_error(ErrorCode::storage, path_,
                ": a part of it cannot be read, on a damaged disk or since it was cut off; copy it anew");
}

Reading::Reading(const std::vector<MappedFile>& files) {
  page_size();  // the size must be known before a handler asks for it
  catch_bus_errors();
  being_read = &files;
}

Reading::~Reading() { being_read = nullptr; }

bool Reading::patch(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  if (!being_read) return false;
  for (const MappedFile& file : *being_read) {
    if (at < file.data_ || at >= file.data_ + file.size_) continue;
    void* page = const_cast<std::byte*>(at) - reinterpret_cast<std::uintptr_t>(at) % page_size();
    file.unreadable_ = 1;
    return ::mmap(page, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
  }
  return false;
}

void expect_read(std::span<const std::byte> bytes) {
  const std::uintptr_t page = page_size();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t lead = begin % page;
  if (lead + bytes.size() <= page) return;  // one page comes as a whole anyway
  ::madvise(const_cast<std::byte*>(bytes.data()) - lead, lead + bytes.size(), MADV_WILLNEED);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_),
      unreadable_(other.unreadable_) {}

// ------------------------------------------------------------------- token stream

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

constexpr std::int64_t largest_token = std::numeric_limits<std::int32_t>::max();

// Returns the last piece that begins at or before the position.
template <class Piece>
typename std::vector<Piece>::const_iterator piece_at(const std::vector<Piece>& pieces,
                                                     std::uint64_t position) {
  return std::prev(
      std::upper_bound(pieces.begin(), pieces.end(), position,
                       [](std::uint64_t value, const Piece& piece) { return value < piece.first; }));
}

}  // namespace

void TokenStream::append(const std::string& file, std::span<const std::byte> bytes, std::uint64_t offset,
                         std::uint64_t count) {
  PRUN_CHECK(offset <= bytes.size() && count <= (bytes.size() - offset) / size_of(type_), file, ": ", count,
             " tokens from byte ", offset, " of ", bytes.size());
  if (count == 0) return;
  if (files_.empty() || files_.back().data != bytes.data()) files_.push_back({tokens_, file, bytes.data()});
  stretches_.push_back({tokens_, bytes.data() + offset});
  tokens_ += count;
}

void TokenStream::read(std::uint64_t first, std::uint64_t count, std::int32_t* out) const {
  PRUN_CHECK(first <= tokens_ && count <= tokens_ - first, "tokens ", first, " + ", count, " of ", tokens_);
  if (count == 0) return;
  for (auto stretch = piece_at(stretches_, first); count > 0; ++stretch) {
    const auto next = std::next(stretch);
    const std::uint64_t end = next == stretches_.end() ? tokens_ : next->first;
    const std::uint64_t taken = std::min(count, end - first);
    const std::byte* from = stretch->data + (first - stretch->first) * size_of(type_);
    expect_read({from, taken * size_of(type_)});
    decode(from, first, taken, out);
    first += taken;
    count -= taken;
    out += taken;
  }
}

std::size_t TokenStream::file_of(std::uint64_t token) const {
  return static_cast<std::size_t>(piece_at(files_, token) - files_.begin());
}

void TokenStream::decode(const std::byte* from, std::uint64_t first, std::uint64_t count,
                         std::int32_t* out) const {
  switch (type_) {
    case TokenType::u8: return decode_as<std::uint8_t>(from, first, count, out);
    case TokenType::i8: return decode_as<std::int8_t>(from, first, count, out);
    case TokenType::i16: return decode_as<std::int16_t>(from, first, count, out);
    case TokenType::u16: return decode_as<std::uint16_t>(from, first, count, out);
    case TokenType::i32: return decode_as<std::int32_t>(from, first, count, out);
    case TokenType::u32: return decode_as<std::uint32_t>(from, first, count, out);
    case TokenType::i64: return decode_as<std::int64_t>(from, first, count, out);
  }
}

template <class T>
void TokenStream::decode_as(const std::byte* from, std::uint64_t first, std::uint64_t count,
                            std::int32_t* out) const {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::byte* at = from + i * sizeof(T);
    const T value = load<T>(at);
    if constexpr (std::is_signed_v<T> || sizeof(T) >= 4) {
      const auto wide = static_cast<std::int64_t>(value);
      if (wide < 0 || wide > largest_token) [[unlikely]]
        reject(at, first + i, std::to_string(value));
    }
    out[i] = static_cast<std::int32_t>(value);
  }
}

void TokenStream::reject(const std::byte* at, std::uint64_t position, const std::string& value) const {
  const File& file = *piece_at(files_, position);
  throw_error(ErrorCode::bad_input, file.name, ": the token at byte ", at - file.data, " (token ", position,
              " of the set) is ", value, ", not within 0 and ", largest_token,
              "; the file is damaged or of another token type: write it anew");
}

}  // namespace prun::tokens
