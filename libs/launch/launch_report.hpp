// Reports ranks that failed: which, why, what the others did, and how to go on.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/launcher.hpp"
#include "launch/rank_process.hpp"

namespace prun {

// ------------------------------------------------------------------- kernel word
// Finds what the kernel says of a process that was killed: whether it did so itself, for want of memory.

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

// ------------------------------------------------------------------- rank failures
// Keeps why a launch fails: what is known of each rank that failed, and what the others did at that time.

// States why the run fails, as far as one rank is concerned.
struct RankFailure {
  int rank = -1;
  int exit_code = 1;
  bool consequence = false;  // whether it says itself that another rank is the reason
  std::string what;          // text such as "was killed by signal 9 (SIGKILL)"
  std::string said;          // the rank's own sentence
  std::string doing, exchange;
  std::time_t at = 0;   // time when it became known
  bool awaited = true;  // whether the others wait for it, in a hang
  bool killed = false;  // whether a SIGKILL that is not ours killed it
};

class RankFailures {
 public:
  bool empty() const { return failures_.empty(); }
  // Returns what is known of a rank's failure; if nothing is yet, what it did last.
  RankFailure& of(int rank, const RankGroup& ranks);
  // Returns the first that became known; the next function returns the first that is no consequence of
  // another; null: there is none.
  const RankFailure* first() const { return failures_.empty() ? nullptr : &failures_.front(); }
  const RankFailure* first_cause() const;
  // Returns what all ranks did when the first failure became known.
  const std::vector<FlightSnapshot>& when_it_failed() const { return when_it_failed_; }

 private:
  std::vector<RankFailure> failures_;  // failures in the order in which they became known
  std::vector<FlightSnapshot> when_it_failed_;
};

// Returns a text such as "was killed by signal 9 (SIGKILL)" for a status that waitpid() gave.
std::string how_it_ended(int status);

// ------------------------------------------------------------------- launch report

class LaunchReport {
 public:
  // It is made before the ranks are: the kernel's counts are compared with those of that time. `options`,
  // which must outlive it, say where to report.
  explicit LaunchReport(const LaunchOptions& options) : options_(options) {}

  // Reports why the run fails. `when_it_failed` is what all ranks did then.
  void tell(const RankFailure& failure, pid_t pid, std::span<const FlightSnapshot> when_it_failed) const;
  // Reports a rank that SIGKILL does not end.
  void report_survivor(int rank, pid_t pid) const;

 private:
  void report_others(const RankFailure& failure, std::span<const FlightSnapshot> when_it_failed) const;
  void report_circumstances(const RankFailure& failure, pid_t pid) const;
  void report_next(const RankFailure& failure) const;

  const LaunchOptions& options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const KernelWord kernel_;
};

}  // namespace prun
