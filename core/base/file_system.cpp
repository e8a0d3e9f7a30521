#include "base/file_system.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- file system

namespace fs = std::filesystem;

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

// Syncs a folder. Some network file systems have no sync of folders and return EINVAL; they order renames
// themselves.
void sync_folder(const FileDescriptor& open, const fs::path& path) {
  if (::fsync(open.get()) != 0 && errno != EINVAL) throw_storage_error("sync", path, errno);
}

void sync_folder(const fs::path& folder) { sync_folder(open_folder(folder), folder); }

// Removes a path. If a name has gone meanwhile, another process removes it as well, and that ends; where new
// ones come, it may never end.
void remove_or_throw(const fs::path& path) {
  std::error_code error;
  for (int refilled = 0; refilled < 10;) {
    error.clear();
    fs::remove_all(path, error);
    if (!error) return;
    if (error.value() == ENOTEMPTY)
      ++refilled;
    else if (error.value() != ENOENT)
      break;
  }
  throw_storage_error("remove", path, error.value());
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

FileDescriptor open_or_throw(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw_storage_error("open", path, errno);
  return FileDescriptor(fd);
}

FileDescriptor open_folder(const fs::path& folder) { return open_or_throw(folder, O_RDONLY | O_DIRECTORY); }

bool names(const fs::path& path, const FileDescriptor& open) {
  struct stat there {
  }, here{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(open.get(), &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

// ------------------------------------------------------------------- near path

namespace fs = std::filesystem;

std::string did_you_mean_beside(const fs::path& missing) {
  constexpr std::size_t most_names = 10000;
  const fs::path parent = missing.parent_path(), run = fs::path("runs") / missing;
  std::error_code error;
  if (parent.empty() && !missing.empty() && fs::is_directory(run, error))
    return "; did you mean " + in_quotes(printable(run.string(), 4096)) + "?";
  std::vector<std::string> names;
  for (fs::directory_iterator entry(parent.empty() ? "." : parent, error), end;
       !error && entry != end && names.size() < most_names; entry.increment(error))
    names.push_back(entry->path().filename().string());
  const std::string name = nearest(missing.filename().string(), names);
  return name.empty() ? "" : "; did you mean " + in_quotes(printable((parent / name).string(), 4096)) + "?";
}

}  // namespace prun
