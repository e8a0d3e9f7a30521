// Write, sync, rename, sync: see durable_file.hpp for the promises.
#include "durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_mark = ".tmp-";
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

void sync_folder(const fs::path& folder) {
  const FileDescriptor fd = open_or_throw(folder, O_RDONLY | O_DIRECTORY);
  // Some network file systems have no sync of folders and say EINVAL; they order renames themselves.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw_storage_error("sync", folder, errno);
}

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

void DurableFile::commit() {
  PRUN_CHECK(fd_.is_open() && !failed_, "'", target_.string(), "' is closed or has failed before");
  failed_ = true;
  sync_descriptor(fd_.get(), target_);
  if (::close(fd_.release()) != 0) throw_storage_error("close", target_, errno);
  rename_or_throw(temporary_, target_);
  temporary_.clear();
  sync_folder(folder_of(target_));
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

DurableFolder::DurableFolder(fs::path target) : target_(checked_target(target)), owner_(::getpid()) {
  std::error_code ignored;  // what the check cannot see, the rename will
  if (fs::exists(fs::symlink_status(target_, ignored))) throw_storage_error("create", target_, EEXIST);
  staging_ = create_temporary(
      target_, [](const fs::path& path) { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; });
}

DurableFolder::~DurableFolder() {
  if (committed_ || owner_ != ::getpid()) return;
  std::error_code ignored;  // a destructor cannot report; the temporary name says what is left
  fs::remove_all(staging_, ignored);
}

void DurableFolder::commit() {
  PRUN_CHECK(!committed_, "'", target_.string(), "' is committed already");
  sync_tree(staging_);
  rename_or_throw(staging_, target_);
  committed_ = true;
  sync_folder(folder_of(target_));
}

void DurableFolder::commit_as_latest() {
  commit();
  set_latest(folder_of(target_), target_.filename().string());
}

// ---- latest ----

namespace {

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\n\0", 3)) == std::string::npos;
}

}  // namespace

void set_latest(const fs::path& parent, const std::string& name) {
  if (!is_plain_name(name)) throw_error(ErrorCode::bad_input, "'", name, "' is not the name of a folder");
  std::error_code error;
  if (!fs::is_directory(parent / name, error)) {
    throw_error(ErrorCode::not_found, "'", (parent / name).string(),
                "' is not a folder; save it before naming it latest");
  }
  replace_text_file(parent / latest_name, name + "\n");
}

std::optional<fs::path> read_latest(const fs::path& parent) {
  const fs::path pointer = parent / latest_name;
  const int fd = ::open(pointer.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  if (fd < 0) throw_storage_error("open", pointer, errno);
  const FileDescriptor file(fd);
  std::string text(512, '\0');  // a name has at most 255 bytes
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) throw_storage_error("read", pointer, errno);
  text.resize(static_cast<std::size_t>(count));
  if (text.ends_with('\n')) text.pop_back();
  if (!is_plain_name(text)) {
    throw_error(ErrorCode::bad_input, "'", pointer.string(),
                "' does not hold the name of one folder; write one into it");
  }
  std::error_code error;
  if (!fs::is_directory(parent / text, error)) {
    throw_error(ErrorCode::not_found, "'", pointer.string(), "' names '", text,
                "', which is not there; name another folder in it");
  }
  return parent / text;
}

}  // namespace prun
