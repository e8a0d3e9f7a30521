// Lists what a feeder hands to an asynchronous queue for each call, piece by piece as
// QueueFeeder::feed_call() enqueues them, in a watched run (in which every call writes its counter) and a
// step whose exposed communication is measured.
#pragma once

#include <map>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct FedPiece {
  const Wait* wait = nullptr;
  std::size_t exchanges = 0;  // exchanges of the call, up to and with this piece; 0: the piece is none
};

class FedPieces {
 public:
  // `stamps` says that there are some around waits, kernels and exchanges, for timed probes.
  explicit FedPieces(bool stamps) : stamps_(stamps) {}

  // Adds a plan, before its calls are listed. `asynchronous` is by queue.
  void add(const Plan& plan, const Numbered<bool>& asynchronous);
  // Replaces what the list holds, and reuses its memory, since each call of each step is listed.
  void list(const Plan& plan, const Call& call, std::int64_t step, std::vector<FedPiece>& pieces) const;

 private:
  bool stamps_;
  // These calls have an event each, by queue and position.
  std::map<const Plan*, Numbered<Numbered<bool>>> by_event_;
};

}  // namespace prun
