// Calls the file system with errors that are sentences: ErrorCode::storage, with the path, the system's
// reason and a remedy.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace prun {

// ------------------------------------------------------------------- file system

// Owns an open file; closes it at the end.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Gives up ownership without closing.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Throws "cannot <action> '<path>': <text of error>; <what to do>".
[[noreturn]] void throw_storage_error(std::string_view action, const std::filesystem::path& path, int error);

// Writes all bytes, also if the system takes only a part at a time. `path` is for the error.
void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

void sync_descriptor(int fd, const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& folder);
void sync_folder(const FileDescriptor& open, const std::filesystem::path& path);

// Removes a path and all that is in it; it is no error if another process removes it as well.
void remove_or_throw(const std::filesystem::path& path);

// Returns the folder that contains a name, "." for a plain name.
std::filesystem::path folder_of(const std::filesystem::path& path);

// Opens a file; takes flags of open(2).
FileDescriptor open_or_throw(const std::filesystem::path& path, int flags);
FileDescriptor open_folder(const std::filesystem::path& folder);

// Says whether the path still names the open file.
bool names(const std::filesystem::path& path, const FileDescriptor& open);

// ------------------------------------------------------------------- near path
// Guesses what a user may have meant who names a file or folder that does not exist.

// Returns "; did you mean 'runs/first'?", from what lies in the same folder, the run of that name in runs, or
// empty.
std::string did_you_mean_beside(const std::filesystem::path& missing);

}  // namespace prun
