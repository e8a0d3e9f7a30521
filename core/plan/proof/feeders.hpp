// Fills the asynchronous queues of simulated ranks, piece by piece in the order of the plan; a queue that is
// full blocks the feeder.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "plan/proof/feed_script.hpp"
#include "plan/proof/lanes.hpp"
#include "plan/proof/queue_limits.hpp"

namespace prun {

// ------------------------------------------------------------ places

// Keeps places for exchanges: a rank may have a limited number under way at a time on all asynchronous queues
// of one pool. Where there are more such queues than that, exchanges begin in the order of the plan.
class Places {
 public:
  // `limits` are by lane. The lanes must outlive the places.
  Places(Lanes& lanes, const std::vector<QueueLimits>& limits);

  // Says whether a lane's exchanges compete with others'.
  bool compete(std::size_t lane) const { return contenders_[lane].pool != no_pool; }
  // Hands the exchanges of a call over to their queue, behind earlier ones. This and the next functions do
  // nothing for a lane that does not compete.
  void hand_over(std::size_t lane);
  // Takes a place; returns whether the exchanges have one. When one is taken or left, the rank's other lanes
  // are woken.
  bool enter(std::size_t lane);
  void leave(std::size_t lane);

  // Says, for a lane that competes, whether no place is left; the next function says of how many.
  bool all_taken(std::size_t lane) const { return pool_of(lane).inside == pool_of(lane).most; }
  std::int64_t most(std::size_t lane) const { return pool_of(lane).most; }

 private:
  static constexpr std::size_t no_pool = static_cast<std::size_t>(-1);
  // Holds what exchanges of a rank compete for.
  struct Pool {
    std::int64_t most = 0, handed = 0, begun = 0, inside = 0;
  };
  struct Contender {
    std::size_t pool = no_pool;
    std::deque<std::int64_t> order;  // places in the pool's order, for exchanges handed over
    bool inside = false;
  };

  void make_pools(std::size_t first, std::size_t behind, const std::vector<QueueLimits>& limits);
  const Pool& pool_of(std::size_t lane) const { return pools_[contenders_[lane].pool]; }

  Lanes& lanes_;
  std::vector<Pool> pools_;
  std::vector<Contender> contenders_;  // contenders by lane
};

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
