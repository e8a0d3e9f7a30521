// Fills the asynchronous queues of simulated ranks, piece by piece in the order of the plan; a queue that is
// full blocks the feeder.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "simulate/feed_script.hpp"
#include "simulate/lanes.hpp"
#include "simulate/places.hpp"
#include "simulate/queue_limits.hpp"

namespace prun {

class Feeders {
 public:
  // The lanes must outlive the feeders.
  Feeders(const RankClasses& ranks, Lanes& lanes, const Limits& limits);

  // Feeds a rank's queues for as long as the next queue has room.
  void feed(std::size_t rank);

  // Says whether a lane is fed; otherwise it has a thread of its own.
  bool feeds(std::size_t lane) const { return fed_[lane].limits.asynchronous; }
  // Says whether a lane that is fed has carried out all that it was handed.
  bool is_empty(std::size_t lane) const { return fed_[lane].handed == fed_[lane].passed; }
  // Returns the next piece of its call, or null after the last one.
  const FedPiece* next_piece(std::size_t lane);
  // Notes that the piece has been carried out, which makes room.
  void pass_piece(std::size_t lane);

  // Says what a rank's feeder has not handed over yet: the next call, and its lane. It is empty once all is
  // handed over.
  struct Held {
    const Call* call = nullptr;
    std::size_t lane = 0;
  };
  std::optional<Held> held(std::size_t rank) const;
  const QueueLimits& limits_of(std::size_t lane) const { return fed_[lane].limits; }
  // Says whether a lane is at exchanges, rather than at another piece of its call.
  bool is_at_exchanges(std::size_t lane) const;

  // Returns the places of exchanges that compete.
  Places& places() { return places_; }
  const Places& places() const { return places_; }

 private:
  // Holds the pieces of a call, and which of them is the next.
  struct Progress {
    std::vector<FedPiece> pieces;
    std::size_t piece = 0;
  };
  struct Feeder {
    std::vector<const Call*> calls;  // calls of a step
    std::size_t next = 0;            // number of the next one, over all steps
    Progress progress;               // progress of the next one

    std::int64_t step() const { return static_cast<std::int64_t>(next / calls.size()); }
  };
  struct Fed {
    QueueLimits limits;
    std::int64_t handed = 0, passed = 0;  // counts of pieces
    Progress progress;                    // progress of the call under way

    bool is_full() const { return limits.depth > 0 && handed - passed == limits.depth; }
  };

  std::vector<QueueLimits> limits_by_lane(const Limits& limits);
  void make_feeder(const Plan& plan, std::size_t rank);
  void write_script(std::size_t lane, const Call& call, std::int64_t step,
                    std::vector<FedPiece>& pieces) const;
  const Plan& plan_of(std::size_t lane) const { return *lanes_.rank_of(lanes_[lane]).plan; }

  Lanes& lanes_;
  const bool stamps_;  // whether there are some around waits, works and exchanges, for timed probes
  // These calls have an event each, by queue and position.
  std::map<const Plan*, Numbered<Numbered<bool>>> by_event_;
  std::vector<Fed> fed_;         // fed lanes
  std::vector<Feeder> feeders_;  // feeders by rank
  Places places_;
};

}  // namespace prun
