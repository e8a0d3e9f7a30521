// Finds the rank that the others wait for, from their flight records.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "base/numbered.hpp"
#include "launch/flight.hpp"

namespace prun {

inline constexpr const char* stopped_text = "is stopped (by a signal such as SIGSTOP)";
inline constexpr const char* silent_text =
    "gives no sign of life (its process is stopped, or its host does not get on)";

struct WatchedRank {
  FlightSnapshot flight;
  bool ended = false;
  const char* standstill = nullptr;  // why it does not advance, if that is known: one of the texts above
};

struct Hang {
  int culprit = -1;
  std::string reason;   // "has not reached all_reduce (number 5 of 'dp'), in which rank 1 has waited for 2.1
                        // s"
  bool awaited = true;  // whether the others wait for it
};

// Returns a hang when a rank has been inside one collective for longer than `limit`. The culprit is a member
// that is stopped, or that has not entered it; if that one waits itself, it is the one at the end of the
// chain. If all have entered it, it is a member that does not wait in it for the others. While the save of
// some rank advances, others may wait for it: time counts from its last advance.
std::optional<Hang> find_hang(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                              std::chrono::milliseconds limit);

// Finds ranks none of which gets on in its step, as in kernels that do not end: then none waits in a
// collective. find_hang() asks this as well.
std::optional<Hang> find_all_stuck(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                                   std::chrono::milliseconds limit);

// Finds, in a run that was asked to end, ranks none of which gets on; one that waits for another names it.
std::optional<Hang> find_stuck_at_stop(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                                       std::chrono::milliseconds limit);

// Finds a rank that is stopped when no other runs any more: then no rank waits for it in a collective.
class StoppedAlone {
 public:
  using Clock = std::chrono::steady_clock;
  // Returns a hang once that has been so for `limit`, as far as this was called meanwhile.
  std::optional<Hang> find(NumberedView<WatchedRank> ranks, Clock::time_point now,
                           std::chrono::milliseconds limit);

 private:
  std::optional<Clock::time_point> since_;
};

// Returns what this rank has been inside for longer than `limit`, as in "all_reduce (number 5 of 'dp'), in
// which rank 1 has waited for 2.1 s".
std::optional<std::string> long_wait(const FlightSnapshot& flight, int rank, std::int64_t now_ns,
                                     std::chrono::milliseconds limit);

}  // namespace prun
