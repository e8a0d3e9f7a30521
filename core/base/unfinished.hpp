// Writes a file or folder under a temporary name, ".<name>.tmp-<process>-<number>", beside its target. The
// system's lock on it shows others that a process works on it, and is released however that process ends: so
// the next process removes what dead ones have left, and nothing of live ones. If a file system has no locks,
// live and dead cannot be distinguished, and all stays.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/file_system.hpp"

namespace prun {

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

}  // namespace prun
