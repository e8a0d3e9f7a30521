// Lists what a feeder hands to an asynchronous queue for each call, piece by piece as
// QueueFeeder::feed_call() enqueues them, in a watched run (which asks every call for its counter) and a step
// whose exposed communication is measured.
#pragma once

#include <map>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct FedPiece {
  const Wait* wait = nullptr;
  std::size_t exchanges = 0;  // of the call, up to and with this piece; 0: it is none
};

class FedPieces {
 public:
  // `stamps`: around waits, kernels and exchanges, as timed probes ask for them.
  explicit FedPieces(bool stamps) : stamps_(stamps) {}

  // Is called before the calls of a plan are asked about. `asynchronous` is by queue.
  void add(const Plan& plan, const Numbered<bool>& asynchronous);
  // Replaces what the list holds, and uses the memory that it has, since each call of each step is asked for.
  void list(const Plan& plan, const Call& call, std::int64_t step, std::vector<FedPiece>& pieces) const;

 private:
  bool stamps_;
  // Calls that an event stands for, by queue and position.
  std::map<const Plan*, Numbered<Numbered<bool>>> by_event_;
};

}  // namespace prun
