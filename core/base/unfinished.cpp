#include "base/unfinished.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_mark = ".tmp-";

// Lists what is unfinished in the process: signals come to the process, and must remove it.
struct List {
  std::recursive_mutex mutex;  // recursive, since making or leaving one may involve others
  std::multiset<fs::path> paths;
};

List& list() {
  static List paths;
  return paths;
}

int made(const fs::path& path, Unfinished::Kind kind, FileDescriptor& file) {
  if (kind == Unfinished::Kind::folder) return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno;
  file = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  return file.is_open() ? 0 : errno;
}

// Makes a path and locks it; returns no lock if another process has that name, or has just removed it.
FileDescriptor make_locked(const fs::path& path, Unfinished::Kind kind, FileDescriptor& file) {
  const int error = made(path, kind, file);
  if (error == EEXIST) return {};
  if (error != 0) throw_storage_error("create", path, error);
  FileDescriptor lock(kind == Unfinished::Kind::file
                          ? ::fcntl(file.get(), F_DUPFD_CLOEXEC, 0)
                          : ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.is_open() && errno != ENOENT) {
    const int trouble = errno;
    ::remove(path.c_str());
    throw_storage_error("open", path, trouble);
  }
  if (lock.is_open() && lock_as_own(lock) && names(path, lock)) return lock;
  return {};
}

// Makes a path beside the target. A process uses no name twice: one that finds a path of a dead process
// removes it by its name. Paths that another process of this number has left are skipped.
fs::path make_beside(const fs::path& target, Unfinished::Kind kind, FileDescriptor& fd,
                     FileDescriptor& lock) {
  static std::atomic<std::uint64_t> next = 0;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    fs::path path = folder_of(target) /
                    detail::concat(".", target.filename().string(), temporary_mark, ::getpid(), "-", next++);
    lock = make_locked(path, kind, fd);
    if (lock.is_open()) return path;
  }
  throw_error(ErrorCode::storage, "'", folder_of(target).string(), "' holds 1000 unfinished copies of '",
              target.filename().string(), "'; remove those names with '", temporary_mark, "'");
}

// Returns the lock on a path that no living process works on: while it is held, no other process removes the
// path.
std::optional<FileDescriptor> lock_of_dead(const fs::path& path) {
  FileDescriptor open(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const bool dead = open.is_open() && ::flock(open.get(), LOCK_EX | LOCK_NB) == 0 && names(path, open);
  if (!dead) return std::nullopt;
  return open;
}

std::vector<fs::path> unfinished_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (is_temporary_name(it->path().filename().string())) paths.push_back(it->path());
  return paths;
}

}  // namespace

bool is_temporary_name(std::string_view name) {
  const std::size_t mark = name.rfind(temporary_mark);
  if (!name.starts_with('.') || mark == std::string_view::npos || mark < 2) return false;
  const std::string_view numbers = name.substr(mark + temporary_mark.size());
  const std::size_t dash = numbers.find('-');
  const bool two_parts = dash != std::string_view::npos && dash > 0 && dash + 1 < numbers.size();
  return two_parts && numbers.find_first_not_of("0123456789-") == std::string_view::npos &&
         numbers.find('-', dash + 1) == std::string_view::npos;
}

// ------------------------------------------------------------------- the process's list

RemovedAtEnd::RemovedAtEnd(const std::function<fs::path()>& make) {
  const std::scoped_lock lock(list().mutex);
  path_ = make();
  list().paths.insert(path_);
}

void RemovedAtEnd::leave(const std::function<void()>& change) {
  const std::scoped_lock lock(list().mutex);
  change();
  list().paths.extract(path_);
  there_ = false;
}

void RemovedAtEnd::forget() {
  if (!there_) return;
  const std::scoped_lock lock(list().mutex);
  list().paths.extract(path_);
}

void remove_what_is_unfinished() {
  list().mutex.lock();
  for (const fs::path& path : list().paths) try {
      remove_or_throw(path);
    } catch (const Error&) {
      // The path has a temporary name, and the next process removes it.
    }
}

// ------------------------------------------------------------------- one of it

Unfinished::Unfinished(const fs::path& target, Kind kind)
    : owner_(::getpid()), removed_([&] { return make_beside(target, kind, fd_, lock_); }) {}

Unfinished::~Unfinished() {
  if (!is_there() || owner_ != ::getpid()) return;
  try {
    remove_or_throw(path());  // though other processes may still fill it
  } catch (const Error&) {
    // A destructor cannot report; the temporary name says what is left.
  }
}

void Unfinished::close() {
  if (::close(fd_.release()) != 0) throw_storage_error("close", path(), errno);
}

bool lock_as_own(const FileDescriptor& open) {
  return ::flock(open.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// ------------------------------------------------------------------- of the dead

void clear_dead_in(const fs::path& folder) {
  std::error_code error;
  const std::vector<fs::path> paths = unfinished_in(folder, error);
  if (error) throw_storage_error("list", folder, error.value());
  for (const fs::path& path : paths)
    if (const std::optional<FileDescriptor> lock = lock_of_dead(path)) remove_or_throw(path);
}

void clear_dead_copies(const fs::path& target) {
  const std::string start = "." + target.filename().string() + std::string(temporary_mark);
  std::error_code ignored;  // the next process that writes there learns of it
  for (const fs::path& path : unfinished_in(folder_of(target), ignored)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(start) || name.find('.', start.size()) != std::string::npos) continue;
    if (const std::optional<FileDescriptor> lock = lock_of_dead(path)) fs::remove_all(path, ignored);
  }
}

}  // namespace prun
