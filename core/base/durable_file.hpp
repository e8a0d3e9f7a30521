// Files and folders that appear whole or not at all, and that survive a power loss once commit() returned:
// written under a temporary name beside the target, synced, renamed, and the parent folder synced.
// Every step is checked; trouble throws ErrorCode::storage with the path, the system's reason and a remedy,
// and the temporary is removed. A failed sync is never tried again: the system may have dropped the data.
// A process that limits file sizes must ignore SIGXFSZ to get an error instead of being killed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prun/error.hpp"

namespace prun {

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

// "cannot <action> '<path>': <text of error>; <what to do>"
[[noreturn]] void throw_storage_error(std::string_view action, const std::filesystem::path& path, int error);

// Writes all bytes, also where the system takes only a part at a time. `path` is for the error.
void write_fully(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

void sync_descriptor(int fd, const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& folder);

// Is this the name of an unfinished file or folder (".<name>.tmp-<process>-<number>")? After a crash such
// names may be left; nothing may read them.
bool is_temporary_name(std::string_view name);

// A file being written. Without commit() the target stays as it was.
class DurableFile {
 public:
  // The folder must exist; a file at `target` is replaced at commit().
  explicit DurableFile(std::filesystem::path target);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Goes to the system at once: write large pieces. After an error the file cannot be committed any more.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Makes the file so long, with room on the disk for it, where its file system can.
  void reserve(std::int64_t bytes);
  // Puts other text in the place of what was written from byte `offset` on.
  void overwrite(std::uint64_t offset, std::string_view text);

  // Sync, close, rename, sync of the folder. If only the last step fails, the target is already replaced
  // (whole), but a power loss may still bring the old one back.
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed
  FileDescriptor fd_;
  pid_t owner_;  // a forked child must not remove its parent's file
  bool failed_ = false;
};

// Replaces `target`, or the file that a link leads to, by `text`, whole or not at all. What is no file (a
// pipe, /dev/null, a terminal, our own standard output) is written into as it stands; a disk is refused.
void replace_text_file(const std::filesystem::path& target, std::string_view text);

// What becomes of a folder that is at the target already.
enum class Existing { refuse, replace };

// A folder being filled, such as one checkpoint. Without commit() nothing appears at the target, or what was
// there stays.
class DurableFolder {
 public:
  // The parent must exist.
  explicit DurableFolder(std::filesystem::path target, Existing existing = Existing::refuse);
  ~DurableFolder();
  DurableFolder(const DurableFolder&) = delete;
  DurableFolder& operator=(const DurableFolder&) = delete;

  // Put files and folders here, by any means and from any process, and have them closed before commit().
  const std::filesystem::path& staging() const { return staging_; }
  const std::filesystem::path& target() const { return target_; }

  // Syncs every file and folder inside, renames, syncs the parent. Refuses unfinished files inside. A folder
  // that is replaced trades places with the new one in one step, and is removed then. Some file systems
  // cannot do that: there it stands aside for a moment, where read_latest() finds it should this process end.
  void commit();
  // commit(), then makes the parent's `latest` name this folder.
  void commit_as_latest();

 private:
  void replace();

  std::filesystem::path target_;
  std::filesystem::path staging_;
  Existing existing_;
  FileDescriptor lock_;  // on the staging folder, as long as somebody fills it
  pid_t owner_;
  bool committed_ = false;
};

// Removes a folder and all that is in it; if this process ends meanwhile, what is left has a temporary name.
void remove_folder(const std::filesystem::path& folder);

// Removes what processes that are gone have left in `folder`: their unfinished files and folders (those of
// living ones are locked), and folders that stood aside for another, which come back if there is none.
void clear_dead_saves(const std::filesystem::path& folder);

// What is in a short text file; nothing when there is none. bad_input for what is not a file.
std::optional<std::string> read_short_file(const std::filesystem::path& path);

// Makes the text file `parent`/latest name the folder `parent`/`name`, which must exist.
void set_latest(const std::filesystem::path& parent, const std::string& name);

// The folder that `parent`/latest names; nothing when there is no such file. Throws bad_input when it is not
// as set_latest() wrote it or names something else than a folder, not_found when that is missing.
std::optional<std::filesystem::path> read_latest(const std::filesystem::path& parent);

}  // namespace prun
