// Finds the rank that the others wait for, from their flight records.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "launch/flight.hpp"
#include "launch/rendezvous_frames.hpp"
#include "launch/stop_signals.hpp"

namespace prun {

// ------------------------------------------------------------------- hang watch

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

// ------------------------------------------------------------------- remote watch
// Watches a run that prun has not started for hangs: no launcher can read the ranks' flight records, so each
// rank sends the rendezvous again and again what its own says (launch/rendezvous.hpp).

// Returns how often ranks report; the next function returns after what time without a report one counts as
// silent.
std::chrono::milliseconds heartbeat_interval(std::chrono::milliseconds limit);
std::chrono::milliseconds longest_silence(std::chrono::milliseconds limit);

class RemoteWatch {
 public:
  // Once a rank was asked to end, all of them may stand still for `still_limit`.
  explicit RemoteWatch(int world, std::chrono::milliseconds still_limit = stop_patience)
      : still_limit_(still_limit), ranks_(static_cast<std::size_t>(world)) {}

  void take(int rank, FlightReport report, std::int64_t now_ns);
  void ended(int rank) { ranks_[rank].ended = true; }
  // Finds a hang. The limit is the shortest that a rank has reported, plus the time that reports take; if
  // none has reported one, only ranks that do not come to a stop are found. It checks ten times within the
  // limit at most, however often it is called. The reason ends with where the rank was.
  std::optional<Hang> find(std::int64_t now_ns);

 private:
  struct Told {
    FlightSnapshot flight;
    std::string doing;
    std::int64_t at_ns = 0;  // 0 if it has reported nothing yet
    bool ended = false;
  };
  std::vector<WatchedRank> watched(std::int64_t now_ns) const;
  std::optional<Hang> hang_in(const std::vector<WatchedRank>& all, std::int64_t now_ns) const;

  std::chrono::milliseconds still_limit_;
  Numbered<Told> ranks_;
  std::chrono::milliseconds limit_{0};   // 0 if no rank has reported one
  std::optional<std::int64_t> stop_ns_;  // time since which a rank is known to have been asked to end
  std::int64_t next_look_ns_ = 0;
};

}  // namespace prun
