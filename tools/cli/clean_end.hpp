// Makes a command that a signal ends leave nothing unfinished behind.
#pragma once

#include <csignal>
#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_system.hpp"
#include "base/whole_file.hpp"

namespace prun {

// While it lives, a signal that asks the process to end (see stop_signals.hpp) removes the files it has not
// finished writing, and ends it with 128 + signal. It must be made before any other thread: later threads
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

// Writes the output of a command (see write_output); a signal meanwhile leaves nothing.
void write_cleanly(const std::filesystem::path& target, std::string_view text, const OutputKind& kind);

}  // namespace prun
