// Lets the ranks of a host share its cores.
#pragma once

#include <sched.h>

#include <optional>
#include <vector>

namespace prun {

// Returns how usable cores are dealt out: contiguous shares, or nothing if there are fewer cores than ranks,
// so that all use all of them.
std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks);

// Gives the calling thread, and what it starts, the cores of one of so many ranks while this lives: a device
// that is made meanwhile finds what that rank's will find.
class CoresOfRank {
 public:
  CoresOfRank(int rank, int ranks);
  ~CoresOfRank();
  CoresOfRank(const CoresOfRank&) = delete;
  CoresOfRank& operator=(const CoresOfRank&) = delete;

  // Says whether cores were dealt; if there are fewer cores than ranks, or one rank, the thread has all of
  // them.
  bool dealt() const { return before_.has_value(); }

 private:
  std::optional<cpu_set_t> before_;
};

// Keeps this process, and the threads that it starts from now on, to one rank's share, if the launcher leaves
// all cores of the machine to each rank. It does nothing if cores were dealt out already.
void keep_to_share(int local_rank, int local_ranks);

}  // namespace prun
