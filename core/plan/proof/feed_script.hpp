// Writes what a feeder hands to an asynchronous queue for a call, in order: QueueFeeder carries the script
// out, and the proof that every step ends replays it (ends.hpp).
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct FedPiece {
  enum class Kind : std::uint8_t { stamp, edge, wait, work, exchanges, event, counter };
  Kind kind = Kind::stamp;
  std::size_t number = 0;  // number of the wait or work; exchanges of the call, up to and with this piece
};

// States what a call hands over beside its waits.
struct FedCall {
  std::size_t works = 0, exchanges = 0;
  bool one_by_one = false;  // exchanges are not started all at once
  bool stamps = false;      // stamps around waits, works and exchanges, for timed probes
  bool edges = false;       // stamps where exposed communication begins or ends
  bool event = false;       // asynchronous queues wait for the call
  bool counter = false;     // threads or other queues wait for it
};

// Replaces what the script holds, and reuses its memory, since each call of each round has one.
void feed_script(const Plan& plan, const Call& call, std::int64_t round, const FedCall& fed,
                 std::vector<FedPiece>& script);

}  // namespace prun
