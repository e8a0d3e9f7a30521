// Starts the ranks of a run on this host, watches over them, and ends them all when one fails. Nothing
// outlives it: ranks die with the launcher, sockets and flight records have no names, and the folder that
// shared memory of ranks is named in goes with it (launch/shared_folder.hpp).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/stop_signals.hpp"

namespace prun {

// Describes this host's ranks of a run that spans several hosts: they meet where the environment says rank 0
// listens, and report errors themselves.
struct ShareOfHost {
  int first = 0;  // number of a rank
  int world = 0;
};

struct LaunchOptions {
  int ranks = 1;
  std::optional<ShareOfHost> share;  // without it, all ranks are here
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;  // arguments, with a name as the first; each rank gets its own
  std::vector<std::pair<std::string, std::string>> environment;  // variables added for every rank
  std::vector<std::string> shared_folder_variables;  // name the ranks' folder in shared memory, unless set
  std::chrono::milliseconds hang_limit{0};           // limit of one collective; 0: not watched
  std::chrono::milliseconds grace{200};              // the others' time once a rank has failed
  std::chrono::milliseconds stop_limit = std::chrono::minutes(5);  // the others' time once a rank has stopped
  std::chrono::milliseconds still_limit = stop_patience;           // once a signal was passed on
  std::function<void(std::string_view line)> say;                  // by default, it writes to stderr
  std::function<std::string()> next = {};  // returns what to type after a rank was lost; empty: unknown

  // Returns the number in the run of a rank that is counted among this host's; the next function returns how
  // many ranks the run has.
  int number_of(int rank) const { return share ? share->first + rank : rank; }
  int world() const { return share ? share->world : ranks; }
};

// Returns when all ranks are gone:
//   0                  all ended with 0
//   128 + signal       stopped: the first of the stop signals is passed on, a second SIGINT kills
//   10 (rank_died)     the first to fail was killed by a signal
//   11 (hang)          a rank did not reach a collective, or the rendezvous, within its limit
//   any other          what the first to fail ended with
// Throws when the ranks cannot be started. The launcher passes on no identity of another launcher.
int launch(const LaunchOptions& options);

}  // namespace prun
