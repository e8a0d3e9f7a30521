#include "page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "prun/error.hpp"

namespace prun::copies {
namespace {

// Returns a new name in the folder that prun removes when ranks end, however they end, or in the usual one.
std::string new_name() {
  std::random_device random;
  const char* const folder = std::getenv("PRUN_COPIES_SHARED");
  return std::string(folder && *folder ? folder : "/dev/shm") + "/prun-copies-" + std::to_string(::getpid()) +
         "-" + std::to_string(random()) + std::to_string(random());
}

[[noreturn]] void refuse(const std::string& name, const char* what) {
  throw_error(ErrorCode::comm_failed, "comm copies: shared memory ", name, " cannot be ", what, ": ",
              std::strerror(errno), "; ranks must be in one container, with a /dev/shm that has room");
}

}  // namespace

SharedPage::SharedPage() : name_(new_name()) {
  const int file = ::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) refuse(name_, "made");
  named_ = true;
  if (const int full = ::posix_fallocate(file, 0, static_cast<off_t>(bytes())); full != 0) {
    ::close(file);
    forget_name();
    errno = full;
    refuse(name_, "made");
  }
  map(file);
}

SharedPage::SharedPage(const std::string& name) : name_(name) {
  const int file = ::open(name_.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) refuse(name_, "opened");
  map(file);
}

void SharedPage::map(int file) {
  memory_ = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory_ != MAP_FAILED) return;
  memory_ = nullptr;
  forget_name();
  refuse(name_, "mapped");
}

SharedPage::~SharedPage() {
  forget_name();
  if (memory_) ::munmap(memory_, bytes());
}

void SharedPage::forget_name() {
  if (named_) ::unlink(name_.c_str());
  named_ = false;
}

}  // namespace prun::copies
