// How the ranks of a host share its cores.
#pragma once

#include <sched.h>

#include <optional>
#include <vector>

namespace prun {

// How usable cores are dealt out: contiguous shares, or nothing when there are fewer cores than ranks, so
// that all use all of them.
std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks);

// While this lives the calling thread has the cores of the first of so many ranks: what a device finds that
// is made meanwhile is what that rank's will find.
class CoresOfRank {
 public:
  explicit CoresOfRank(int ranks);
  ~CoresOfRank();
  CoresOfRank(const CoresOfRank&) = delete;
  CoresOfRank& operator=(const CoresOfRank&) = delete;

 private:
  std::optional<cpu_set_t> before_;
};

// Of ranks whose launcher leaves all cores of the machine to each of them: this process and the threads that
// it starts from now on keep to the share of one. Nothing where cores were dealt out already.
void keep_to_share(int local_rank, int local_ranks);

}  // namespace prun
