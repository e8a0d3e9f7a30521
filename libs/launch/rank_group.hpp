// Holds the ranks that a launch has started on this host, until all of them are reaped.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/numbered.hpp"
#include "launch/flight.hpp"
#include "launch/hang_watch.hpp"
#include "launch/rank_process.hpp"

namespace prun {

struct LaunchedRank {
  RankProcess process;
  FlightView flight;
  std::optional<int> status;  // set once it is reaped
};

class RankGroup {
 public:
  void add(LaunchedRank rank) { ranks_.push_back(std::move(rank)); }
  const Numbered<LaunchedRank>& all() const { return ranks_; }
  const LaunchedRank& operator[](int rank) const { return ranks_[rank]; }
  bool all_gone() const;

  // Sends a signal to each rank that is not reaped; kill() reaches what they started as well.
  void signal(int signal) const;
  void kill() const;
  // Returns ranks that have ended and are not reaped. Those that were killed come first: what ended with a
  // code at the same time may have noticed.
  std::vector<int> ended() const;
  // Returns the system's status of how it ended, and kills what it started. Returns nothing if it still runs.
  std::optional<int> reap(int rank);

  std::vector<FlightSnapshot> snapshots() const;
  // Returns the ranks as find_hang() takes them.
  std::vector<WatchedRank> watched() const;

 private:
  Numbered<LaunchedRank> ranks_;
};

}  // namespace prun
