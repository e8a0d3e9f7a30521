// What a feeder hands to an asynchronous queue of each call, piece by piece as QueueFeeder::feed_call()
// enqueues them in a run that is watched, which asks every call for its counter, in a step whose exposed
// communication is measured.
#pragma once

#include <set>
#include <tuple>
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

  // Before the calls of a plan are asked about. `asynchronous`: by queue.
  void add(const Plan& plan, const std::vector<bool>& asynchronous);
  std::vector<FedPiece> of(const Plan& plan, const Call& call, std::int64_t step) const;

 private:
  bool stamps_;
  std::set<std::tuple<const Plan*, std::int32_t, std::int32_t>> by_event_;  // calls that an event stands for
};

}  // namespace prun
