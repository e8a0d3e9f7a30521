// Finds the rank that the others wait for, from their flight records.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "launch/flight.hpp"

namespace prun {

struct WatchedRank {
  FlightSnapshot flight;
  bool ended = false;
  bool stopped = false;  // by a signal such as SIGSTOP
};

struct Hang {
  int culprit = -1;
  std::string reason;  // "did not reach all_reduce (number 5 of 'dp'), in which rank 1 waits for 2.1 s"
};

// Something when a rank has been inside one collective for longer than `limit`. The culprit is a member that
// is stopped, or that has not entered it; if that one waits for somebody itself, the one at the end of the
// chain. If all have entered it, a member that does not wait in it for the others.
std::optional<Hang> find_hang(std::span<const WatchedRank> ranks, std::int64_t now_ns,
                              std::chrono::milliseconds limit);

}  // namespace prun
