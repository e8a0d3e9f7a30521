// Write, sync, rename, sync: see durable_file.hpp for the promises.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/crc32c.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- unfinished

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

namespace {

// ------------------------------------------------------------------- durable file

namespace fs = std::filesystem;

constexpr std::string_view aside_mark = ".replaced";
constexpr std::string_view latest_name = "latest";

// Drops a slash at the end, so that filename() is what gets renamed.
fs::path checked_target(const fs::path& path) {
  fs::path target = path.has_filename() ? path : path.parent_path();
  const fs::path name = target.filename();
  if (name.empty() || name == "." || name == "..") {
    throw_error(ErrorCode::bad_input, "'", path.string(), "' does not end in a name that can be written to");
  }
  return target;
}

// Returns where a folder stands while another takes its place: ".NAME.replaced".
fs::path aside_of(const fs::path& target) {
  return folder_of(target) / detail::concat(".", target.filename().string(), aside_mark);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw_storage_error("put the finished data in place at", to, errno);
}

void sync_tree(const fs::path& folder);

void sync_entry(const fs::path& path, fs::file_type type) {
  if (is_temporary_name(path.filename().string())) {
    throw_error(ErrorCode::storage, "'", path.string(),
                "' is an unfinished file: commit it before its folder");
  }
  if (type == fs::file_type::directory) return sync_tree(path);
  if (type == fs::file_type::symlink) return;  // a link lives in its folder, which is synced
  if (type != fs::file_type::regular) {
    throw_error(ErrorCode::storage, "'", path.string(),
                "' is neither a file nor a folder; it cannot be saved");
  }
  sync_descriptor(open_or_throw(path, O_RDONLY).get(), path);
}

void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::file_type type = it->symlink_status(error).type();
    if (error) break;
    sync_entry(it->path(), type);
  }
  if (error) throw_storage_error("list", folder, error.value());
  sync_folder(folder);
}

}  // namespace

// ---- DurableFile ----

namespace {

fs::path file_target(const fs::path& path) {
  fs::path target = checked_target(path);
  std::error_code ignored;  // what the check cannot see, the rename will
  if (fs::is_directory(target, ignored)) throw_storage_error("write", target, EISDIR);
  return target;
}

}  // namespace

DurableFile::DurableFile(fs::path target)
    : target_(file_target(target)), written_(target_, Unfinished::Kind::file) {}

void DurableFile::expect_usable() const {
  PRUN_CHECK(written_.fd() >= 0 && !failed_, "'", target_.string(), "' is closed or has failed before");
}

void DurableFile::write(std::span<const std::byte> bytes) {
  expect_usable();
  failed_ = true;
  write_fully(written_.fd(), bytes, target_);
  failed_ = false;
}

void DurableFile::reserve(std::int64_t bytes) {
  expect_usable();
  while (bytes > 0 && ::fallocate(written_.fd(), 0, 0, bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    if (errno != EINTR) throw_storage_error(detail::concat("reserve ", bytes, " bytes in"), target_, errno);
  }
}

void DurableFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  expect_usable();
  failed_ = true;
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(written_.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_storage_error("write", target_, count < 0 ? errno : EIO);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  failed_ = false;
}

void DurableFile::commit() {
  expect_usable();
  failed_ = true;
  sync_descriptor(written_.fd(), target_);
  written_.close();
  // A process that waited for the file may rename its folder at once.
  const FileDescriptor folder = open_folder(folder_of(target_));
  written_.leave([&] { rename_or_throw(written_.path(), target_); });
  sync_folder(folder, folder_of(target_));
}

namespace {

// Returns the standard stream that a file is: /dev/stdout, or what it was redirected into; -1 for any other.
// It is written at the stream's position, and never replaced while it is open.
int standard_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino) return fd;
  }
  return -1;
}

// Opens a file in place, without blocking at first: a pipe that has no reader is an error, not a wait.
FileDescriptor open_in_place(const fs::path& target) {
  FileDescriptor fd = open_or_throw(target, O_WRONLY | O_NOCTTY | O_NONBLOCK);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// Returns where a chain of links ends, whether something is there or not.
fs::path behind_links(fs::path path) {
  constexpr int most_links = 40;  // as many links as the system follows
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    const fs::path next = fs::read_symlink(path, error);
    if (error || links == most_links) throw_storage_error("follow the link", path, ELOOP);
    path = folder_of(path) / next;
  }
  return path;
}

}  // namespace

void replace_text_file(const fs::path& target, std::string_view text) {
  struct stat facts {};
  const bool exists = ::stat(target.c_str(), &facts) == 0;
  if (exists && S_ISBLK(facts.st_mode))
    throw_error(ErrorCode::bad_input, "'", target.string(), "' is a disk, not a file; name a file");
  if (const int stream = exists ? standard_stream(facts) : -1; stream >= 0) {
    std::fflush(stdout);  // earlier output comes first
    write_fully(stream, std::as_bytes(std::span(text)), target);
  } else if (exists && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)) {
    write_fully(open_in_place(target).get(), std::as_bytes(std::span(text)), target);
  } else {
    put_text_file(behind_links(target), text);
  }
}

bool is_standard_stream(const fs::path& target) {
  struct stat facts {};
  return ::stat(target.c_str(), &facts) == 0 && standard_stream(facts) >= 0;
}

void put_text_file(const fs::path& target, std::string_view text) {
  clear_dead_copies(target);
  DurableFile file(target);
  file.write(text);
  file.commit();
}

// ---- DurableFolder ----

namespace {

fs::path folder_target(const fs::path& path, Existing existing) {
  fs::path target = checked_target(path);
  std::error_code ignored;  // what the check cannot see, the rename will
  if (existing == Existing::refuse && fs::exists(fs::symlink_status(target, ignored)))
    throw_error(ErrorCode::bad_input, "'", target.string(),
                "' is there already; remove it or choose another name");
  clear_dead_copies(target);
  return target;
}

}  // namespace

DurableFolder::DurableFolder(fs::path target, Existing existing)
    : target_(folder_target(target, existing)),
      existing_(existing),
      staging_(target_, Unfinished::Kind::folder) {}

void DurableFolder::commit() {
  PRUN_CHECK(staging_.is_there(), "'", target_.string(), "' is committed already");
  sync_tree(staging());
  std::error_code ignored;  // what the check cannot see, the rename will
  if (existing_ == Existing::replace && fs::is_directory(fs::symlink_status(target_, ignored)))
    return replace();
  staging_.leave([&] { rename_or_throw(staging(), target_); });
  sync_folder(folder_of(target_));
}

void DurableFolder::replace() {
  fs::path old = staging();
  staging_.leave([&] {
    if (::renameat2(AT_FDCWD, old.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) throw_storage_error("replace", target_, errno);
    const fs::path aside = aside_of(target_);
    rename_or_throw(target_, aside);
    rename_or_throw(staging(), target_);
    old = aside;
  });
  sync_folder(folder_of(target_));
  std::error_code ignored;  // clear_dead_saves() finds what is left of the old one
  fs::remove_all(old, ignored);
}

void DurableFolder::commit_as_latest() {
  commit();
  set_latest(folder_of(target_), target_.filename().string());
}

// ---- what is left ----

namespace {

// Returns the name in ".step-00000010.replaced" without dot and mark, or nothing.
std::string name_of_aside(const std::string& name) {
  if (!name.starts_with('.') || !name.ends_with(aside_mark) || name.size() <= 1 + aside_mark.size())
    return {};
  return name.substr(1, name.size() - 1 - aside_mark.size());
}

void clear_aside(const fs::path& aside, const fs::path& target) {
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(target, ignored).type();
  if (type == fs::file_type::not_found) rename_or_throw(aside, target);
  if (type == fs::file_type::directory) remove_or_throw(aside);
}

}  // namespace

void remove_folder(const fs::path& folder) {
  const fs::path target = checked_target(folder);
  const FileDescriptor own(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!own.is_open() && errno == ENOENT) return;
  if (!own.is_open()) throw_storage_error("remove", target, errno);
  lock_as_own(own);  // if another process has it, that one is alive as well
  const Unfinished doomed(target, Unfinished::Kind::folder);
  if (::rename(target.c_str(), doomed.path().c_str()) == 0) return remove_or_throw(doomed.path());
  if (errno != ENOENT) throw_storage_error("remove", target, errno);
}

void clear_dead_saves(const fs::path& folder) {
  clear_dead_in(folder);
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error) throw_storage_error("list", folder, error.value());
  for (const fs::path& path : entries)
    if (const std::string name = name_of_aside(path.filename().string()); !name.empty())
      clear_aside(path, folder / name);
}

// ---- latest ----

namespace {

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\n\0", 3)) == std::string::npos;
}

bool is_real_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

}  // namespace

std::optional<std::string> read_short_file(const fs::path& path) {
  constexpr std::size_t longest = 4096;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) return std::nullopt;
  if (type == fs::file_type::none) throw_storage_error("look at", path, error.value());
  if (type != fs::file_type::regular)
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is not a file; remove it");
  const FileDescriptor fd = open_or_throw(path, O_RDONLY | O_NONBLOCK);
  std::string text(longest + 1, '\0');
  const ssize_t count = ::read(fd.get(), text.data(), text.size());
  if (count < 0) throw_storage_error("read", path, errno);
  if (static_cast<std::size_t>(count) > longest)
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is longer than the ", longest,
                " bytes that it may have; it is damaged or another file");
  text.resize(static_cast<std::size_t>(count));
  return text;
}

void set_latest(const fs::path& parent, const std::string& name) {
  if (!is_plain_name(name)) throw_error(ErrorCode::bad_input, "'", name, "' is not the name of a folder");
  if (!is_real_folder(parent / name)) {
    throw_error(ErrorCode::not_found, "'", (parent / name).string(),
                "' is not a folder; save it before naming it latest");
  }
  put_text_file(parent / latest_name, sealed_line(name));
}

std::optional<fs::path> read_latest(const fs::path& parent) {
  const fs::path pointer = parent / latest_name;
  const std::optional<std::string> line = read_short_file(pointer);
  if (!line) return std::nullopt;
  const std::optional<std::string> name = unsealed(*line);
  if (!name || !is_plain_name(*name)) {
    throw_error(ErrorCode::bad_input, "'", pointer.string(),
                "' is damaged or was not written by prun; name the folder it should lead to instead of '",
                parent.string(), "'");
  }
  if (is_real_folder(parent / *name)) return parent / *name;
  if (is_real_folder(aside_of(parent / *name))) return aside_of(parent / *name);
  std::error_code ignored;
  const bool exists = fs::exists(fs::symlink_status(parent / *name, ignored));
  throw_error(exists ? ErrorCode::bad_input : ErrorCode::not_found, "'", pointer.string(), "' names ",
              in_quotes(*name), exists ? ", which is not a folder" : ", which is not there",
              "; name another folder instead of '", parent.string(), "'");
}

}  // namespace prun
