// Queues of simulated ranks (lanes): how far each has come, and which may proceed. Example: of 8 identical
// ranks with 4 queues each, one rank is simulated: 4 lanes.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------------- simulated rank
// A rank as simulations see it: its plan, and the members of each queue's group. Example: rank 5 of a mesh dp
// = 4, pp = 2 has the group {1, 3, 5, 7} for `dp.reduce`.

// Ranks by number, in the order of the members.
using Group = std::shared_ptr<const std::vector<int>>;

struct SimulatedRank {
  const Program* program = nullptr;
  const Plan* plan = nullptr;
  int rank = 0;
  Numbered<Group> groups;  // by queue; null: it does not communicate
};

// Returns all ranks of the mesh, each with its plan.
std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of);

// ------------------------------------------------------------------- rank classes
// Finds ranks that a simulation need not distinguish: same plan, and peers of the same classes. Example: dp =
// 4 × pp = 2 has two classes: the four ranks of stage 0, and those of stage 1.

// Returns, by rank, a number shared by indistinguishable ranks: the same plan and, by queue, members with the
// same numbers in the same order.
std::vector<int> classes_of_ranks(std::span<const SimulatedRank> ranks);

// The first rank of each class stands for all.
class RankClasses {
 public:
  // The ranks must outlive the classes.
  explicit RankClasses(std::span<const SimulatedRank> ranks);

  std::size_t count() const { return first_.size(); }
  const SimulatedRank& first(std::size_t number) const { return *first_[number]; }
  std::int64_t size(std::size_t number) const { return sizes_[number]; }
  int class_of(int rank) const { return class_of_.at(rank); }
  std::span<const SimulatedRank> ranks() const { return ranks_; }

 private:
  std::span<const SimulatedRank> ranks_;
  std::vector<const SimulatedRank*> first_;
  std::vector<std::int64_t> sizes_;
  std::unordered_map<int, int> class_of_;  // by rank
};

// ------------------------------------------------------------------- lanes

// A queue of a simulated rank.
struct Lane {
  std::size_t rank = 0;  // class of the rank
  std::int32_t queue = 0;
  Numbered<const Call*> calls;  // of a step
  std::size_t ended = 0;        // over all steps
  std::size_t exchange = 0;     // finished collectives of the current call
  std::size_t behind = 0;       // calls after its own iteration to the last of a step

  // The current call is the next to end.
  std::int64_t step() const { return static_cast<std::int64_t>(ended / calls.size()); }
  const Call& call() const { return *calls[ended % calls.size()]; }
  // Returns the position of a call among those of all steps.
  std::size_t ticket(std::int64_t step, std::int32_t call) const {
    return static_cast<std::size_t>(step) * calls.size() + static_cast<std::size_t>(call);
  }
  // Returns the number of calls until so many steps have ended, the last possibly in a later iteration.
  std::size_t calls_until(std::size_t steps) const { return steps * calls.size() + behind; }
  void end_call() {
    ++ended;
    exchange = 0;
  }
};

class Lanes {
 public:
  // Makes lanes for one rank of each class, for `steps` steps. The classes must outlive it.
  Lanes(const RankClasses& ranks, std::int64_t steps);

  std::size_t count() const { return lanes_.size(); }
  std::int64_t steps() const { return steps_; }
  // Returns more than the number of steps if steps overlap: the last of them end in further ones.
  std::int64_t iterations() const { return iterations_; }
  bool overlaps() const { return iterations_ > steps_; }
  Iteration iteration_of(const Lane& lane) const {
    const std::int64_t iteration = lane.step();
    return {static_cast<std::int32_t>(std::min<std::int64_t>(iteration, Iteration::many)),
            static_cast<std::int32_t>(std::max<std::int64_t>(0, iteration + 1 - steps_))};
  }
  // Returns false if the lane's next call does nothing in this iteration.
  bool runs(const Lane& lane) const { return lane.call().runs_in(iteration_of(lane)); }
  Lane& operator[](std::size_t lane) { return lanes_[lane]; }
  const Lane& operator[](std::size_t lane) const { return lanes_[lane]; }
  std::vector<Lane>::const_iterator begin() const { return lanes_.begin(); }
  std::vector<Lane>::const_iterator end() const { return lanes_.end(); }
  std::size_t of(std::size_t rank, std::int32_t queue) const {
    return first_[rank] + static_cast<std::size_t>(queue);
  }

  const SimulatedRank& rank_of(const Lane& lane) const { return ranks_.first(lane.rank); }
  const QueueInfo& info_of(const Lane& lane) const { return rank_of(lane).plan->queues[lane.queue]; }
  // Returns null if it does not communicate.
  const Group& group_of(const Lane& lane) const { return rank_of(lane).groups[lane.queue]; }
  bool is_unfinished(const Lane& lane) const { return !lane.calls.empty() && lane.step() < iterations_; }
  // Waits for steps before the first are over.
  bool is_over(const Lane& lane, const Wait& wait) const {
    const std::int64_t step = lane.step() - wait.steps_ago;
    if (step < 0) return true;
    const Lane& other = lanes_[of(lane.rank, wait.queue)];
    return other.ticket(step, wait.call) < other.ended;
  }
  // Names rank, queue and current call.
  std::string text_of(const Lane& lane) const;

  // Awake lanes run in the order in which they were woken.
  void wake(std::size_t lane);
  void wake_rank(std::size_t rank);
  void wake_all();
  std::optional<std::size_t> next_awake();

 private:
  const RankClasses& ranks_;
  const std::int64_t steps_;
  std::int64_t iterations_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> first_;  // by rank, and the end
  std::deque<std::size_t> awake_;
  std::vector<bool> is_awake_;  // by lane
};

// ------------------------------------------------------------------- channels
// Decides where simulated ranks meet. A collective starts when all members have arrived; a send meets the
// receive with the same number between the same ranks. Example: four ranks on an axis, simulated as two
// classes of two: their all-reduce starts when both simulated lanes have arrived.

class Channels {
 public:
  // Arguments must outlive it. `ranks_of_host`: consecutive ranks that share a host; 0: all.
  Channels(const RankClasses& ranks, Lanes& lanes, std::int64_t ranks_of_host = 0)
      : ranks_(ranks), lanes_(lanes), ranks_of_host_(ranks_of_host), visitors_(lanes.count()) {}

  // The ranks of a collective, and their classes.
  struct Participants {
    std::int64_t members = 0;
    std::size_t classes = 0;
    bool far = false;  // on several hosts
  };
  // Returns true once the lane's next collective is over; the lane goes on at `now`. The first call registers
  // the lane at `now`; when all have arrived, they are woken, and the collective takes seconds(company).
  template <class Seconds>
  bool meet(std::size_t lane, const PlannedExchange& exchange, double& now, Seconds&& seconds) {
    Visitor& visitor = visitors_[lane];
    if (!visitor.waits) visitor.channel = channel_of(lanes_[lane], exchange);
    Channel& channel = channels_[visitor.channel];
    std::size_t& met = visitor.met[visitor.channel];
    if (channel.meetings.size() <= met) channel.meetings.resize(met + 1);
    Meeting& meeting = channel.meetings[met];
    if (!visitor.waits && arrive(lane, exchange, now, channel, meeting)) {
      meeting.end =
          meeting.latest + seconds(Participants{channel.members, channel.classes.size(), channel.far});
      wake_others(lane, meeting);
    }
    visitor.waits = meeting.end < 0;
    if (visitor.waits) return false;
    now = meeting.end;
    visitor.met_at = meeting.latest;
    ++met;
    return true;
  }

  // Returns when all had arrived for the lane's last collective.
  double met_at(std::size_t lane) const { return visitors_[lane].met_at; }

  // Returns true if the lane is at a collective that others have not reached; missing_at() lists these ranks.
  bool waits(std::size_t lane) const { return visitors_[lane].waits; }
  std::vector<int> missing_at(std::size_t lane) const;

 private:
  // A collective that some lanes have reached.
  struct Meeting {
    const PlannedExchange* exchange = nullptr;
    std::vector<std::size_t> lanes;  // present lanes
    double latest = 0;
    double end = -1;  // known once all have arrived
  };
  // Where the same ranks meet repeatedly.
  struct Channel {
    std::vector<int> classes;  // of its ranks, each once
    std::int64_t members = 0;
    bool far = false;
    std::vector<Meeting> meetings;
  };
  // State of a lane.
  struct Visitor {
    bool waits = false;
    double met_at = 0;
    std::size_t channel = 0;                 // where it waits
    std::map<std::size_t, std::size_t> met;  // finished collectives by channel
  };

  bool arrive(std::size_t lane, const PlannedExchange& exchange, double now, const Channel& channel,
              Meeting& meeting) const;
  void wake_others(std::size_t lane, const Meeting& meeting);
  void check_same(const Lane& a, const PlannedExchange& x, const Lane& b, const PlannedExchange& y) const;
  std::size_t channel_of(const Lane& lane, const PlannedExchange& exchange);
  Channel make_channel(const std::vector<int>& group, int from, int to) const;
  std::size_t group_class_of(const std::vector<int>& group);

  const RankClasses& ranks_;
  Lanes& lanes_;
  const std::int64_t ranks_of_host_;
  std::vector<Visitor> visitors_;  // by lane
  std::vector<Channel> channels_;
  // By queue, group class and, between two ranks, sender and receiver.
  std::map<std::tuple<std::string, std::size_t, int, int>, std::size_t> numbers_;
  std::unordered_map<const std::vector<int>*, std::size_t> class_by_group_;
  std::map<std::vector<int>, std::size_t> group_classes_;
};

}  // namespace prun
