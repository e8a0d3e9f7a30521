// Implements mapping by open, fstat and mmap.
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

}  // namespace prun::tokens
