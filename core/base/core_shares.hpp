// The ranks of a host share its cores through this.
#pragma once

#include <sched.h>

#include <optional>
#include <vector>

namespace prun {

// Returns how usable cores are dealt out: contiguous shares, or nothing when there are fewer cores than
// ranks, so that all use all of them.
std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks);

// While this lives the calling thread, and what it starts, has the cores of one of so many ranks: a device
// that is made meanwhile finds what that rank's will find.
class CoresOfRank {
 public:
  CoresOfRank(int rank, int ranks);
  ~CoresOfRank();
  CoresOfRank(const CoresOfRank&) = delete;
  CoresOfRank& operator=(const CoresOfRank&) = delete;

  // False: there are fewer cores than ranks, or one rank, and the thread has all of them.
  bool dealt() const { return before_.has_value(); }

 private:
  std::optional<cpu_set_t> before_;
};

// Keeps this process, and the threads that it starts from now on, to one rank's share, where the launcher
// leaves all cores of the machine to each rank. It does nothing where cores were dealt out already.
void keep_to_share(int local_rank, int local_ranks);

}  // namespace prun
