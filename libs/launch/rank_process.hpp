// Starts one rank: a process that dies with its launcher, leads a process group, and has inherited its end of
// the rendezvous and its flight record.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "base/numbered.hpp"
#include "launch/flight.hpp"
#include "launch/hang_watch.hpp"

namespace prun {

// ------------------------------------------------------------------- rank process

struct RankStart {
  std::string program;
  std::vector<std::string> arguments;    // arguments, with the name as the first
  std::vector<std::string> environment;  // whole environment, as NAME=value
  std::vector<int> inherited;            // descriptors above 2 to keep open
  std::optional<cpu_set_t> cores;
  sigset_t signal_mask;
};

struct RankProcess {
  pid_t pid = -1;
  FileDescriptor pidfd;  // readable once the process has ended
};

// Returns when the program runs; throws bad_input when it cannot be run. The calling thread must live as long
// as the rank: the system ties the rank's life to it.
RankProcess start_rank(const RankStart& start);

// Returns 'T' for stopped, 'Z' for ended but not reaped, as /proc says; 0 if there is no such process.
char process_state(pid_t pid);

// ------------------------------------------------------------------- rank group
// Holds the ranks that a launch has started on this host, until all of them are reaped.

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
