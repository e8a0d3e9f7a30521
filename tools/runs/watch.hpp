// Shows the current state of a run that was started elsewhere, for `prun watch`. It sends the run nothing.
#pragma once

#include <filesystem>
#include <string>

#include "runs/log.hpp"
#include "runs/run_list.hpp"

namespace prun {

// Is a process of the run, where it is on this host.
struct RankSeen {
  int rank = 0;
  std::int64_t pid = 0;
  char state = '?';  // as in /proc
  std::int64_t resident_bytes = 0;
};
std::vector<RankSeen> ranks_seen(const RunHolder& holder);

struct WatchScreen {
  std::size_t columns = 80;
  bool utf8 = true;
  double now = 0;
};

// Returns some lines, none wider than the screen: state, progress, curves, rates, ranks, what happened last.
std::string watch_text(const RunLog& log, const RunStatus& status, const std::vector<RankSeen>& ranks,
                       const WatchScreen& screen);

// Says whether the run may still log something.
bool goes_on(const RunStatus& status);

}  // namespace prun
