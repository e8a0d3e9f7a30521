// Writes files and folders that appear whole or not at all, and survive a power loss once commit() returned:
// they are written under a temporary name beside the target, synced and renamed, and the parent folder is
// synced. Every step is checked; errors throw ErrorCode::storage with the path, the system's reason and a
// remedy, and the temporary is removed. A failed sync is never tried again: the system may have dropped the
// data. A process that limits file sizes must ignore SIGXFSZ to get an error instead of being killed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file_system.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- unfinished
// Writes a file or folder under a temporary name, ".<name>.tmp-<process>-<number>", beside its target. The
// system's lock on it shows others that a process works on it, and is released however that process ends: so
// the next process removes what dead ones have left, and nothing of live ones. If a file system has no locks,
// live and dead cannot be distinguished, and all stays.

// Says whether a name is temporary; nothing may read what has such a name.
bool is_temporary_name(std::string_view name);

// Removes a path when a signal ends this process (see remove_what_is_unfinished).
class RemovedAtEnd {
 public:
  // Calls make(), which makes a path and returns it; a signal's removal never runs at the same time.
  explicit RemovedAtEnd(const std::function<std::filesystem::path()>& make);
  ~RemovedAtEnd() { forget(); }
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool is_there() const { return there_; }
  // Calls change(), which moves the path elsewhere, wholly before an end of the process or not at all. If it
  // throws, all is as it was.
  void leave(const std::function<void()>& change);

 private:
  void forget();

  std::filesystem::path path_;
  bool there_ = true;
};

// Removes every such path of this process, which must end next: a thread that would make or leave one waits
// for ever.
void remove_what_is_unfinished();

// Holds a file or folder that is locked while this lives; it is removed at the end unless it was left.
class Unfinished {
 public:
  enum class Kind { file, folder };
  // Makes an empty one beside `target`.
  Unfinished(const std::filesystem::path& target, Kind kind);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& path() const { return removed_.path(); }
  // Returns the descriptor of a file for writing.
  int fd() const { return fd_.get(); }
  // Closes what was written, and checks for errors; it stays locked.
  void close();
  bool is_there() const { return removed_.is_there(); }
  void leave(const std::function<void()>& change) { removed_.leave(change); }

 private:
  FileDescriptor fd_, lock_;
  pid_t owner_;  // process that owns it: a forked child must not remove its parent's
  RemovedAtEnd removed_;
};

// Locks an open file to show others that this process works on it. Returns false if another process does
// already.
bool lock_as_own(const FileDescriptor& open);

// Removes what dead processes have left unfinished in a folder.
void clear_dead_in(const std::filesystem::path& folder);
// Does the same for one target, as far as that is possible.
void clear_dead_copies(const std::filesystem::path& target);

// ------------------------------------------------------------------- durable file

// Writes a file. Without commit() the target stays as it was.
class DurableFile {
 public:
  // Begins a file. The folder must exist; a file at `target` is replaced at commit().
  explicit DurableFile(std::filesystem::path target);

  // Writes to the system at once: write large pieces. After an error the file cannot be committed any more.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Makes the file so long, with room on the disk for it, if its file system can.
  void reserve(std::int64_t bytes);
  // Writes from byte `offset` on, over what is there, or beyond the end.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::string_view text) {
    write_at(offset, std::as_bytes(std::span(text)));
  }

  // Syncs, closes, renames and syncs the folder. If only the last step fails, the target is already replaced
  // (whole), but a power loss may still bring the old one back.
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  void expect_usable() const;

  std::filesystem::path target_;
  Unfinished written_;
  bool failed_ = false;
};

// Replaces `target`, or the file that a link leads to, by `text`, whole or not at all. What is no file (a
// pipe, /dev/null, a terminal, prun's standard output) is written into as it stands; a disk is refused.
void replace_text_file(const std::filesystem::path& target, std::string_view text);

// Says whether prun's standard output or standard error goes there.
bool is_standard_stream(const std::filesystem::path& target);

// Puts `text` in place of any file or link of that name, whole or not at all.
void put_text_file(const std::filesystem::path& target, std::string_view text);

// Says what happens to a folder that is at the target already.
enum class Existing { refuse, replace };

// Fills a folder, such as one checkpoint. Without commit() nothing appears at the target, or what was there
// stays.
class DurableFolder {
 public:
  // Begins a folder. The parent must exist. Throws bad_input if something is there that is not to be
  // replaced. It removes what dead processes have left of the same target.
  explicit DurableFolder(std::filesystem::path target, Existing existing = Existing::refuse);

  // Returns the folder to put files and folders in, by any means and from any process; close them before
  // commit().
  const std::filesystem::path& staging() const { return staging_.path(); }
  const std::filesystem::path& target() const { return target_; }

  // Syncs every file and folder inside, renames, syncs the parent. Refuses unfinished files inside. A folder
  // that is replaced trades places with the new one in one step, and is removed then. Some file systems
  // cannot do that: there it stands aside for a moment, where read_latest() finds it if this process ends.
  void commit();
  // Does commit(), then makes the parent's `latest` name this folder.
  void commit_as_latest();

 private:
  void replace();

  std::filesystem::path target_;
  Existing existing_;
  Unfinished staging_;
};

// Removes a folder and all that is in it; if this process ends meanwhile, what is left has a temporary name.
// A folder that is gone already is no error.
void remove_folder(const std::filesystem::path& folder);

// Removes what dead processes have left in `folder`: their unfinished files and folders, and folders that
// stood aside for another, which come back if there is none.
void clear_dead_saves(const std::filesystem::path& folder);

// Returns what is in a short text file, or nothing if there is none. Throws bad_input for what is not a file.
std::optional<std::string> read_short_file(const std::filesystem::path& path);

// Makes the text file `parent`/latest name the folder `parent`/`name`, which must exist.
void set_latest(const std::filesystem::path& parent, const std::string& name);

// Returns the folder that `parent`/latest names, or nothing if there is no such file. Throws bad_input if it
// is not as set_latest() wrote it or names something else than a folder, not_found if that is missing.
std::optional<std::filesystem::path> read_latest(const std::filesystem::path& parent);

}  // namespace prun
