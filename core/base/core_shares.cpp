#include "base/core_shares.hpp"

#include <unistd.h>

namespace prun {

std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable)) cores.push_back(core);
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::optional<cpu_set_t>> shares(count);
  if (cores.size() < count) return shares;
  for (std::size_t rank = 0; rank < count; ++rank) {
    cpu_set_t share;
    CPU_ZERO(&share);
    for (std::size_t i = cores.size() * rank / count; i < cores.size() * (rank + 1) / count; ++i)
      CPU_SET(cores[i], &share);
    shares[rank] = share;
  }
  return shares;
}

CoresOfRank::CoresOfRank(int rank, int ranks) {
  cpu_set_t usable;
  if (ranks <= 1 || ::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  const auto share = share_cores(usable, ranks)[static_cast<std::size_t>(rank)];
  if (share && ::sched_setaffinity(0, sizeof *share, &*share) == 0) before_ = usable;
}

CoresOfRank::~CoresOfRank() {
  if (before_) ::sched_setaffinity(0, sizeof *before_, &*before_);
}

void keep_to_share(int local_rank, int local_ranks) {
  cpu_set_t usable;
  if (local_ranks <= 1 || ::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  if (CPU_COUNT(&usable) < ::sysconf(_SC_NPROCESSORS_ONLN)) return;
  const auto share = share_cores(usable, local_ranks)[static_cast<std::size_t>(local_rank)];
  if (share) ::sched_setaffinity(0, sizeof *share, &*share);
}

}  // namespace prun
