#include "launch/rank_group.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

namespace prun {

bool RankGroup::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const LaunchedRank& rank) { return rank.status.has_value(); });
}

void RankGroup::signal(int signal) const {
  for (const LaunchedRank& rank : ranks_)
    if (!rank.status) ::kill(rank.process.pid, signal);
}

void RankGroup::kill() const {
  for (const LaunchedRank& rank : ranks_) {
    if (rank.status) continue;
    ::kill(-rank.process.pid, SIGKILL);
    ::kill(rank.process.pid, SIGKILL);
  }
}

std::vector<int> RankGroup::ended() const {
  std::vector<int> killed, ended;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].status) continue;
    siginfo_t info{};
    const auto pid = static_cast<id_t>(ranks_[i].process.pid);
    if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    (info.si_code == CLD_EXITED ? ended : killed).push_back(static_cast<int>(i));
  }
  killed.insert(killed.end(), ended.begin(), ended.end());
  return killed;
}

// Kills and reaps a rank's group: before the rank is reaped its number is still its own, and so is its
// group's, so what it started is killed with it.
std::optional<int> RankGroup::reap(int rank) {
  LaunchedRank& ended = ranks_[rank];
  ::kill(-ended.process.pid, SIGKILL);
  int status = 0;
  if (::waitpid(ended.process.pid, &status, WNOHANG) != ended.process.pid) return {};
  return ended.status = status;
}

std::vector<FlightSnapshot> RankGroup::snapshots() const {
  std::vector<FlightSnapshot> all;
  for (const LaunchedRank& rank : ranks_) all.push_back(rank.flight.snapshot());
  return all;
}

std::vector<WatchedRank> RankGroup::watched() const {
  std::vector<WatchedRank> all;
  for (const LaunchedRank& rank : ranks_) {
    const bool stopped = !rank.status && process_state(rank.process.pid) == 'T';
    all.push_back({rank.flight.snapshot(), rank.status.has_value(), stopped ? stopped_text : nullptr});
  }
  return all;
}

}  // namespace prun
