// open, fstat, mmap.
#include "mmap_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "prun/error.hpp"

namespace prun::tokens {

namespace {

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::storage;
  throw_error(code, path, ": cannot be ", action, " (", std::strerror(error),
              "); check the path and its permissions");
}

class Descriptor {
 public:
  // Not blocking, so that a named pipe is refused rather than waited for.
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

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) fail(path_, "examined", errno);
  if (!S_ISREG(facts.st_mode))
    throw_error(ErrorCode::bad_input, path_, ": is not a regular file; name the token file itself");
  size_ = static_cast<std::size_t>(facts.st_size);
  if (size_ == 0) return;  // an empty file cannot be mapped
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (mapped == MAP_FAILED) fail(path_, "mapped into memory", errno);
  data_ = static_cast<const std::byte*>(mapped);
  ::madvise(mapped, size_, MADV_RANDOM);
}

void MappedFile::expect_scan() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

void expect_read(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
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
      size_(std::exchange(other.size_, 0)) {}

}  // namespace prun::tokens
