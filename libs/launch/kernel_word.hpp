// Finds what the kernel says of a process that was killed: whether it did so itself, for want of memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace prun {

// Names the kernel's files; some may be missing or unreadable for this process.
struct KernelFiles {
  std::string membership = "/proc/self/cgroup", groups = "/sys/fs/cgroup";
  std::string counters = "/proc/vmstat", log = "/dev/kmsg";
};

class KernelWord {
 public:
  // Notes what the kernel has counted so far. Ranks are in the control group of the process that starts them.
  explicit KernelWord(KernelFiles files = {});

  // Returns one sentence about a process that SIGKILL has ended.
  std::string of(pid_t pid) const;

 private:
  struct Group {
    std::string limit;                  // file with the limit
    std::optional<std::int64_t> kills;  // memory kills of its processes
  };
  Group group() const;
  std::optional<std::string> line_about(pid_t pid) const;

  KernelFiles files_;
  std::optional<std::int64_t> group_kills_, all_kills_;
};

}  // namespace prun
