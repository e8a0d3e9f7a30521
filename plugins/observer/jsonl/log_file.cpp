// Uses O_APPEND, write and fdatasync.
#include "log_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "prun/error.hpp"
#include "prun/json_writer.hpp"

namespace prun::jsonl {

namespace {

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, path, ": its folder cannot be made (", error.message(),
                "); give the log another path");
}

int open_to_append(const std::string& path, Links links) {
  make_folder_of(path);
  const int follow = links == Links::refused ? O_NOFOLLOW : 0;
  return ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | follow, 0666);
}

}  // namespace

LogFile::LogFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  if (descriptor_ < 0) fail("opened");
}

LogFile::LogFile(std::string path, Links links) : LogFile(path, open_to_append(path, links)) {
  if (links == Links::refused) expect_only_name();
  expect_alone();
  within_line_ = ends_within_line();
  if (observer::Outlet::may_stand_still(descriptor_)) outlet_.emplace(descriptor_, path_);
}

LogFile::~LogFile() {
  if (lost_ > 0) {
    outlet_->settle();
    outlet_->put(lost_lines());
  }
  ::close(descriptor_);
}

void LogFile::append(std::string_view line) {
  if (outlet_) return offer(line);
  expect_named();
  const std::string whole = (within_line_ ? "\n" : "") + std::string(line) + "\n";
  std::string_view left = whole;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno != EINTR) fail("written");
    if (written <= 0) continue;
    left.remove_prefix(static_cast<std::size_t>(written));
    within_line_ = !left.empty();
  }
}

void LogFile::offer(std::string_view line) {
  lost_ = outlet_->put(lost_lines() + std::string(line) + "\n") ? 0 : lost_ + 1;
}

std::string LogFile::lost_lines() const {
  return lost_ > 0
             ? JsonWriter().begin_object().member("type", "lost").member("lines", lost_).end_object().take() +
                   "\n"
             : "";
}

void LogFile::flush() {
  // Pipes and the like have nothing to sync and say EINVAL.
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) fail("flushed");
}

// Throws where the file has lost its name: nobody would read its lines.
void LogFile::expect_named() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && facts.st_nlink == 0)
    throw_error(
        ErrorCode::storage, path_,
        ": the log was removed while the run wrote into it; leave the run's folder alone until it ends");
}

// Throws where the file has another name: lines appended here would be appended to a file elsewhere.
void LogFile::expect_only_name() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && facts.st_nlink > 1)
    throw_error(ErrorCode::bad_input, path_,
                " has another name as well, and what is written here would change that file; put a copy in "
                "its place");
}

// Two writers of every step would look like steps done twice. A file system may know no locks.
void LogFile::expect_alone() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw_error(ErrorCode::bad_input, path_,
                ": another observer or run writes into this log; leave one out or give it another path");
}

void LogFile::fail(const char* action) const {
  const int error = errno;
  throw_error(ErrorCode::storage, path_, ": the log cannot be ", action, " (", std::strerror(error),
              "); free space there or give the log another path");
}

bool LogFile::ends_within_line() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (!S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
  char last = '\n';
  if (::pread(descriptor_, &last, 1, facts.st_size - 1) != 1) fail("read");
  return last != '\n';
}

}  // namespace prun::jsonl
