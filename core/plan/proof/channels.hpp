// Decides where simulated ranks meet. A collective starts when all members have arrived; a send meets the
// receive with the same number between the same ranks. Example: four ranks on an axis, simulated as two
// classes of two: their all-reduce starts when both simulated lanes have arrived.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "plan/proof/lanes.hpp"

namespace prun {

class Channels {
 public:
  // Arguments must outlive it. `ranks_of_host`: consecutive ranks that share a host; 0: all.
  Channels(const RankClasses& ranks, Lanes& lanes, std::int64_t ranks_of_host = 0)
      : ranks_(ranks), lanes_(lanes), ranks_of_host_(ranks_of_host), visitors_(lanes.count()) {}

  // The ranks of a collective, and their classes.
  struct Company {
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
      meeting.end = meeting.latest + seconds(Company{channel.members, channel.classes.size(), channel.far});
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
  std::size_t company_of(const std::vector<int>& group);

  const RankClasses& ranks_;
  Lanes& lanes_;
  const std::int64_t ranks_of_host_;
  std::vector<Visitor> visitors_;  // by lane
  std::vector<Channel> channels_;
  // By queue, group class and, between two ranks, sender and receiver.
  std::map<std::tuple<std::string, std::size_t, int, int>, std::size_t> numbers_;
  std::unordered_map<const std::vector<int>*, std::size_t> company_by_group_;
  std::map<std::vector<int>, std::size_t> companies_;
};

}  // namespace prun
