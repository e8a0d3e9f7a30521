// Write, sync, rename, sync: see durable_file.hpp for the promises.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/crc32c.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_mark = ".tmp-";
constexpr std::string_view aside_mark = ".replaced";
constexpr std::string_view latest_name = "latest";

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "free some space or choose a folder on another disk";
    case EROFS:
    case EACCES:
    case EPERM: return "choose a folder that you may write to";
    case EFBIG: return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE: return "raise the limit on open files (ulimit -n)";
    case ENOENT:
    case ENOTDIR: return "check that the folder exists and that each part of the path is a folder";
    case EEXIST:
    case ENOTEMPTY: return "remove what is there or choose another name";
    case EIO: return "check the disk, and do not trust what was just written";
    case ENXIO: return "start what reads from it first";
    case EPIPE: return "what read from it is gone";
    default: return "check the path and the disk";
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Drops a slash at the end, so that filename() is what gets renamed.
fs::path checked_target(const fs::path& path) {
  fs::path target = path.has_filename() ? path : path.parent_path();
  const fs::path name = target.filename();
  if (name.empty() || name == "." || name == "..") {
    throw_error(ErrorCode::bad_input, "'", path.string(), "' does not end in a name that can be written to");
  }
  return target;
}

// Calls create(path) with fresh temporary names beside `target` until it returns other than EEXIST.
// Names left by a crashed process of the same number are stepped over, not reused.
template <class Create>
fs::path create_temporary(const fs::path& target, const Create& create) {
  for (int number = 0; number < 1000; ++number) {
    const std::string name =
        detail::concat(".", target.filename().string(), temporary_mark, ::getpid(), "-", number);
    fs::path path = folder_of(target) / name;
    const int error = create(path);
    if (error == 0) return path;
    if (error != EEXIST) throw_storage_error("create", path, error);
  }
  throw_error(ErrorCode::storage, "'", folder_of(target).string(), "' holds 1000 unfinished copies of '",
              target.filename().string(), "'; remove those names with '", temporary_mark, "'");
}

FileDescriptor open_or_throw(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw_storage_error("open", path, errno);
  return FileDescriptor(fd);
}

// Shows others that somebody works on it, until it is closed; where there are no locks, nobody can be shown.
void lock(int fd) { ::flock(fd, LOCK_EX | LOCK_NB); }

// Whether somebody who holds the lock may still be alive.
bool is_locked(const fs::path& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return !fd.is_open() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

// Where a folder stands while another takes its place: ".NAME.replaced".
fs::path aside_of(const fs::path& target) {
  return folder_of(target) / detail::concat(".", target.filename().string(), aside_mark);
}

FileDescriptor open_folder(const fs::path& path) { return open_or_throw(path, O_RDONLY | O_DIRECTORY); }

// Some network file systems have no sync of folders and say EINVAL; they order renames themselves.
void sync_open_folder(const FileDescriptor& fd, const fs::path& path) {
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw_storage_error("sync", path, errno);
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
  if (type == fs::file_type::symlink) return;  // lives in its folder, which is synced
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

FileDescriptor::~FileDescriptor() {
  if (is_open()) ::close(fd_);
}

void throw_storage_error(std::string_view action, const fs::path& path, int error) {
  throw_error(ErrorCode::storage, "cannot ", action, " '", path.string(),
              "': ", std::generic_category().message(error), "; ", remedy(error));
}

void write_fully(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_storage_error("write", path, errno);
    if (count == 0) throw_storage_error("write", path, EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void sync_descriptor(int fd, const fs::path& path) {
  if (::fsync(fd) != 0) throw_storage_error("sync", path, errno);
}

void sync_folder(const fs::path& folder) { sync_open_folder(open_folder(folder), folder); }

bool is_temporary_name(std::string_view name) {
  const std::size_t mark = name.rfind(temporary_mark);
  if (!name.starts_with('.') || mark == std::string_view::npos || mark < 2) return false;
  const std::string_view numbers = name.substr(mark + temporary_mark.size());
  const std::size_t dash = numbers.find('-');
  const bool two_parts = dash != std::string_view::npos && dash > 0 && dash + 1 < numbers.size();
  return two_parts && numbers.find_first_not_of("0123456789-") == std::string_view::npos &&
         numbers.find('-', dash + 1) == std::string_view::npos;
}

// ---- DurableFile ----

DurableFile::DurableFile(fs::path target) : target_(checked_target(target)), owner_(::getpid()) {
  std::error_code ignored;  // what the check cannot see, the rename will
  if (fs::is_directory(target_, ignored)) throw_storage_error("write", target_, EISDIR);
  temporary_ = create_temporary(target_, [&](const fs::path& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    fd_ = FileDescriptor(fd);
    lock(fd);
    return 0;
  });
}

DurableFile::~DurableFile() {
  if (!temporary_.empty() && owner_ == ::getpid()) ::unlink(temporary_.c_str());
}

void DurableFile::write(std::span<const std::byte> bytes) {
  PRUN_CHECK(fd_.is_open() && !failed_, "'", target_.string(), "' is closed or has failed before");
  failed_ = true;
  write_fully(fd_.get(), bytes, target_);
  failed_ = false;
}

void DurableFile::reserve(std::int64_t bytes) {
  PRUN_CHECK(fd_.is_open() && !failed_, "'", target_.string(), "' is closed or has failed before");
  while (bytes > 0 && ::fallocate(fd_.get(), 0, 0, bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    if (errno != EINTR) throw_storage_error(detail::concat("reserve ", bytes, " bytes in"), target_, errno);
  }
}

void DurableFile::overwrite(std::uint64_t offset, std::string_view text) {
  PRUN_CHECK(fd_.is_open() && !failed_, "'", target_.string(), "' is closed or has failed before");
  failed_ = true;
  while (!text.empty()) {
    const ssize_t count = ::pwrite(fd_.get(), text.data(), text.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_storage_error("write", target_, count < 0 ? errno : EIO);
    offset += static_cast<std::uint64_t>(count);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  failed_ = false;
}

void DurableFile::commit() {
  PRUN_CHECK(fd_.is_open() && !failed_, "'", target_.string(), "' is closed or has failed before");
  failed_ = true;
  sync_descriptor(fd_.get(), target_);
  if (::close(fd_.release()) != 0) throw_storage_error("close", target_, errno);
  // Whoever waited for the file may give its folder another name at once.
  const FileDescriptor folder = open_folder(folder_of(target_));
  rename_or_throw(temporary_, target_);
  temporary_.clear();
  sync_open_folder(folder, folder_of(target_));
}

namespace {

// The standard stream that a file is: /dev/stdout, or what it was redirected into; -1 for any other. It is
// written where the stream stands, and never replaced under it.
int standard_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino) return fd;
  }
  return -1;
}

// Not blocking at first: a pipe that nobody reads from is an error, not a wait.
FileDescriptor open_in_place(const fs::path& target) {
  FileDescriptor fd = open_or_throw(target, O_WRONLY | O_NOCTTY | O_NONBLOCK);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// Where a chain of links ends, whether something is there or not.
fs::path behind_links(fs::path path) {
  constexpr int most_links = 40;  // as many as the system follows
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
    std::fflush(stdout);  // what was printed before comes first
    write_fully(stream, std::as_bytes(std::span(text)), target);
  } else if (exists && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)) {
    write_fully(open_in_place(target).get(), std::as_bytes(std::span(text)), target);
  } else {
    DurableFile file(behind_links(target));
    file.write(text);
    file.commit();
  }
}

// ---- DurableFolder ----

DurableFolder::DurableFolder(fs::path target, Existing existing)
    : target_(checked_target(target)), existing_(existing), owner_(::getpid()) {
  std::error_code ignored;  // what the check cannot see, the rename will
  if (existing == Existing::refuse && fs::exists(fs::symlink_status(target_, ignored)))
    throw_storage_error("create", target_, EEXIST);
  staging_ = create_temporary(
      target_, [](const fs::path& path) { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; });
  lock_ = open_folder(staging_);
  lock(lock_.get());
}

DurableFolder::~DurableFolder() {
  if (committed_ || owner_ != ::getpid()) return;
  std::error_code ignored;  // a destructor cannot report; the temporary name says what is left
  fs::remove_all(staging_, ignored);
}

void DurableFolder::commit() {
  PRUN_CHECK(!committed_, "'", target_.string(), "' is committed already");
  sync_tree(staging_);
  std::error_code ignored;  // what the check cannot see, the rename will
  if (existing_ == Existing::replace && fs::is_directory(fs::symlink_status(target_, ignored)))
    return replace();
  rename_or_throw(staging_, target_);
  committed_ = true;
  sync_folder(folder_of(target_));
}

void DurableFolder::replace() {
  fs::path old = staging_;
  if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw_storage_error("replace", target_, errno);
    old = aside_of(target_);
    rename_or_throw(target_, old);
    rename_or_throw(staging_, target_);
  }
  committed_ = true;
  sync_folder(folder_of(target_));
  std::error_code ignored;  // what is left of the old one, clear_dead_saves() finds
  fs::remove_all(old, ignored);
}

void DurableFolder::commit_as_latest() {
  commit();
  set_latest(folder_of(target_), target_.filename().string());
}

// ---- what is left ----

namespace {

void remove_or_throw(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_storage_error("remove", path, error.value());
}

// ".step-00000010.replaced": the name without dot and mark, or nothing.
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
  const fs::path doomed = create_temporary(
      target, [](const fs::path& path) { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; });
  if (::rename(target.c_str(), doomed.c_str()) != 0) {
    const int error = errno;
    ::rmdir(doomed.c_str());
    throw_storage_error("remove", target, error);
  }
  remove_or_throw(doomed);
}

void clear_dead_saves(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error) throw_storage_error("list", folder, error.value());
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string(), replaced = name_of_aside(name);
    if (!replaced.empty()) clear_aside(path, folder / replaced);
    if (is_temporary_name(name) && !is_locked(path)) remove_or_throw(path);
  }
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
  replace_text_file(parent / latest_name, sealed_line(name));
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
