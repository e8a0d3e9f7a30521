// A process writes a file or folder under a temporary name, ".<name>.tmp-<process>-<number>", beside its
// target. The system's lock on it shows others that a process works on it, and is released however that
// process ends: so the next process removes what dead ones have left, and nothing of live ones. Where a file
// system has no locks, live and dead cannot be distinguished, and all stays.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/file_system.hpp"

namespace prun {

// Nothing may read what has such a name.
bool is_temporary_name(std::string_view name);

// Removes a path when a signal ends this process (see remove_what_is_unfinished).
class RemovedAtEnd {
 public:
  // make() makes what lies there, and says where; it does not happen beside an end.
  explicit RemovedAtEnd(const std::function<std::filesystem::path()>& make);
  ~RemovedAtEnd() { forget(); }
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool is_there() const { return there_; }
  // change() puts it elsewhere, whole before an end or not at all. Where it throws, all is as it was.
  void leave(const std::function<void()>& change);

 private:
  void forget();

  std::filesystem::path path_;
  bool there_ = true;
};

// Removes every such path of this process, which must end next: whoever would make or leave one waits for
// ever.
void remove_what_is_unfinished();

// A file or folder that is locked while this lives; removed at the end unless it was left.
class Unfinished {
 public:
  enum class Kind { file, folder };
  // Makes it beside `target`, empty.
  Unfinished(const std::filesystem::path& target, Kind kind);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& path() const { return removed_.path(); }
  // Returns the descriptor of a file for writing.
  int fd() const { return fd_.get(); }
  // Closes what was written, and looks after its errors; it stays locked.
  void close();
  bool is_there() const { return removed_.is_there(); }
  void leave(const std::function<void()>& change) { removed_.leave(change); }

 private:
  FileDescriptor fd_, lock_;
  pid_t owner_;  // a forked child must not remove its parent's
  RemovedAtEnd removed_;
};

// Shows others that somebody works on what is open. False: somebody does already.
bool lock_as_own(const FileDescriptor& open);

// Removes what processes that are gone have left unfinished in a folder.
void clear_dead_in(const std::filesystem::path& folder);
// Does the same for one target, as far as that is possible.
void clear_dead_copies(const std::filesystem::path& target);

}  // namespace prun
