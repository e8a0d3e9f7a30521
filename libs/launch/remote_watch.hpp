// Watches a run that prun has not started for hangs: no launcher can read the ranks' flight records, so each
// rank sends the rendezvous again and again what its own says (launch/heartbeat.hpp).
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/numbered.hpp"
#include "launch/hang_watch.hpp"
#include "launch/rendezvous_frames.hpp"
#include "launch/stop_signals.hpp"

namespace prun {

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
