// Makes a command that a signal ends leave nothing unfinished behind.
#pragma once

#include <csignal>
#include <thread>
#include <vector>

#include "base/file_system.hpp"

namespace prun {

// While it lives, a signal that asks the process to end (see stop_signals.hpp) removes the files it has not
// finished writing, and ends it with 128 + signal. It must be made before any other thread: later threads
// leave signals to this one's.
// leave signals to this one's.
class CleanEnd {
 public:
  CleanEnd();
  ~CleanEnd();
  CleanEnd(const CleanEnd&) = delete;
  CleanEnd& operator=(const CleanEnd&) = delete;

 private:
  void watch() const;

  sigset_t before_{};
  FileDescriptor signals_, over_;
  std::jthread thread_;
};

}  // namespace prun
