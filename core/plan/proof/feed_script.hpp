// Lists what a feeder hands to an asynchronous queue for a call, in order. QueueFeeder runs the script; the
// proof that every step ends replays it (ends.hpp). Example: a forward of three pieces with a wait: wait,
// work 0, work 1, work 2, counter.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct FedPiece {
  enum class Kind : std::uint8_t { stamp, edge, wait, work, exchanges, event, counter };
  Kind kind = Kind::stamp;
  std::size_t number = 0;  // of the wait or work; collectives of the call, up to and with this piece
};

// A call hands this over besides its waits.
struct FedCall {
  std::size_t works = 0, exchanges = 0;
  bool one_by_one = false;  // collectives start one by one
  bool stamps = false;      // stamps around waits, works and collectives, for timed probes
  bool edges = false;       // stamps at the ends of exposed communication
  bool event = false;       // asynchronous queues wait for the call
  bool counter = false;     // threads wait for it
};

// Replaces the script and reuses its memory: each call of each iteration has one.
void feed_script(const Plan& plan, const Call& call, std::int64_t round, const FedCall& fed,
                 std::vector<FedPiece>& script);

}  // namespace prun
