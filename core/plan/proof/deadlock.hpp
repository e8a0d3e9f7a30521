// Proves that the queues of all ranks come to the end of every step, with the bounds that devices and comm
// plugins have, and describes the deadlock if they do not. Example: two queues that each wait for the other's
// second call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/proof/events.hpp"
#include "plan/proof/lanes.hpp"

namespace prun {

// ------------------------------------------------------------------- queue limits
// Limits that may delay or deadlock queues, besides their waits. Example: a CUDA stream takes about a
// thousand launches before the next one blocks the host.

struct QueueLimits {
  bool asynchronous = false;  // its rank's submitter fills it; otherwise it has a thread
  // Works that it holds before the submitter blocks, as a device counts them; 0: unlimited.
  std::int64_t depth = 0;
  // Collectives that a rank may run at a time on all asynchronous queues with this `pool`; more queues than
  // that start them in the order of the plan. 0: unlimited.
  std::int64_t resident = 0;
  std::string pool = {};
};

struct Limits {
  std::function<QueueLimits(const QueueInfo&)> of;
  bool stamps = false;  // timed probes need stamps, which the submitter hands over too
};

// ------------------------------------------------------------------- submitters
// Simulates the threads that fill a rank's asynchronous queues in the order of the plan. A full queue blocks
// the thread, and so all queues it fills. Example: depth 1000: a forward of 1001 kernels fills the compute
// queue, and the all-gather after it is handed over only when the first kernel has ended.

// ------------------------------------------------------------ places

// Places for collectives: a rank may run a limited number at a time on the queues of a pool. If there are
// more queues, collectives start in the order of the plan.
class Places {
 public:
  // `limits` are by lane. The lanes must outlive it.
  Places(Lanes& lanes, const std::vector<QueueLimits>& limits);

  // Returns true if a lane's collectives compete for places.
  bool compete(std::size_t lane) const { return contenders_[lane].pool != no_pool; }
  // Queues the collectives of a call. This and the functions below do nothing for lanes that do not compete.
  void hand_over(std::size_t lane);
  // Takes a place; false if none is free. Other lanes of the rank are woken when places change.
  bool enter(std::size_t lane);
  void leave(std::size_t lane);

  // Returns, for a lane that competes, true if no place is free. The next function returns their number.
  bool all_taken(std::size_t lane) const { return pool_of(lane).inside == pool_of(lane).most; }
  std::int64_t most(std::size_t lane) const { return pool_of(lane).most; }

 private:
  static constexpr std::size_t no_pool = static_cast<std::size_t>(-1);
  struct Pool {
    std::int64_t most = 0, handed = 0, begun = 0, inside = 0;
  };
  struct Contender {
    std::size_t pool = no_pool;
    std::deque<std::int64_t> order;  // handed over, in the pool's order
    bool inside = false;
  };

  void make_pools(std::size_t first, std::size_t behind, const std::vector<QueueLimits>& limits);
  const Pool& pool_of(std::size_t lane) const { return pools_[contenders_[lane].pool]; }

  Lanes& lanes_;
  std::vector<Pool> pools_;
  std::vector<Contender> contenders_;  // by lane
};

class Submitters {
 public:
  // The lanes must outlive it.
  Submitters(const RankClasses& ranks, Lanes& lanes, const Limits& limits);

  // Hands over until the next queue is full.
  void submit(std::size_t rank);

  // Returns false if the lane has a thread.
  bool submits(std::size_t lane) const { return submitted_[lane].limits.asynchronous; }
  // Returns true if a fed lane has run all that it was handed.
  bool is_empty(std::size_t lane) const { return submitted_[lane].handed == submitted_[lane].passed; }
  // Returns that of its call; null after the last.
  const SubmittedPiece* next_piece(std::size_t lane);
  // The piece has run, which makes room.
  void pass_piece(std::size_t lane);

  // The next call that a rank's submitter has to hand over, and its lane; empty when all are handed over.
  struct Held {
    const Call* call = nullptr;
    std::size_t lane = 0;
  };
  std::optional<Held> held(std::size_t rank) const;
  const QueueLimits& limits_of(std::size_t lane) const { return submitted_[lane].limits; }
  // Returns false at another piece of its call.
  bool is_at_exchanges(std::size_t lane) const;

  Places& places() { return places_; }
  const Places& places() const { return places_; }

 private:
  // Pieces of a call, and the next one.
  struct Progress {
    std::vector<SubmittedPiece> pieces;
    std::size_t piece = 0;
  };
  struct Submitter {
    std::vector<const Call*> calls;  // of a step
    std::size_t next = 0;            // over all steps
    Progress progress;               // of the next one

    std::int64_t step() const { return static_cast<std::int64_t>(next / calls.size()); }
  };
  struct Submitted {
    QueueLimits limits;
    std::int64_t handed = 0, passed = 0;  // pieces
    Progress progress;                    // of the current call

    bool is_full() const { return limits.depth > 0 && handed - passed == limits.depth; }
  };

  std::vector<QueueLimits> limits_by_lane(const Limits& limits);
  void make_submitter(const Plan& plan, std::size_t rank);
  void write_script(std::size_t lane, const Call& call, std::int64_t step,
                    std::vector<SubmittedPiece>& pieces) const;
  const Plan& plan_of(std::size_t lane) const { return *lanes_.rank_of(lanes_[lane]).plan; }

  Lanes& lanes_;
  const bool stamps_;  // around waits, works and collectives, for timed probes
  // Calls with an event, by queue and position.
  std::map<const Plan*, Numbered<Numbered<bool>>> by_event_;
  std::vector<Submitted> submitted_;
  std::vector<Submitter> submitters_;  // by rank
  Places places_;
};

// ------------------------------------------------------------------- deadlock

// Returns a line for each waiting submitter and queue, or the first of them. `submitters` is null without
// queue limits.
std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Submitters* submitters = nullptr);

// ------------------------------------------------------------------- deadlock check
// Proves that every step of a run ends, with any delays: queues that hold a limited number of works, and
// collectives that compete for a limited number of places.
//
// A run makes no choices: each queue waits for a fixed event. So all orders of events end or none does, and
// testing one suffices. Work depends only on its own step and earlier ones, and from the second step on all
// are equal, so two steps suffice. Example: two queues of depth 2 filled by one thread; if the first blocks
// on a send whose receive is behind the second queue's full depth, the ranks deadlock.

// Throws unsupported with ranks, queues and calls that wait for each other, what is too small, and the least
// that would do.
void check_no_deadlock(std::span<const SimulatedRank> ranks, const Limits& limits);

}  // namespace prun
