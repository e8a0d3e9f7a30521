// Reports ranks that failed: which, why, what the others did, and how to go on.
#pragma once

#include <chrono>
#include <span>

#include "launch/kernel_word.hpp"
#include "launch/launcher.hpp"
#include "launch/rank_failures.hpp"

namespace prun {

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
