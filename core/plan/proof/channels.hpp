// Decides where simulated ranks meet: an exchange begins when all who take part have reached it, and a send
// meets the receive that has the same number between the same two ranks.
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
  // Both must outlive it. So many ranks of consecutive numbers share a host; 0 means all.
  Channels(const RankClasses& ranks, Lanes& lanes, std::int64_t ranks_of_host = 0)
      : ranks_(ranks), lanes_(lanes), ranks_of_host_(ranks_of_host), visitors_(lanes.count()) {}

  // Counts the ranks that take part in an exchange, and their classes.
  struct Company {
    std::int64_t members = 0;
    std::size_t classes = 0;
    bool far = false;  // whether they are on more than one host
  };
  // Says whether the next exchange of a lane is over for it; then the lane goes on at `now`. The lane is
  // there from its first call of this on, at `now`; once all others are, they are woken, and the exchange
  // takes as long as seconds(company) says.
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

  // Returns when all were there for the exchange that was over for the lane last.
  double met_at(std::size_t lane) const { return visitors_[lane].met_at; }

  // Says whether a lane is at an exchange that others have not reached yet, and which ranks these are.
  bool waits(std::size_t lane) const { return visitors_[lane].waits; }
  std::vector<int> missing_at(std::size_t lane) const;

 private:
  // Describes an exchange that some lanes have reached.
  struct Meeting {
    const PlannedExchange* exchange = nullptr;
    std::vector<std::size_t> lanes;  // lanes that are there
    double latest = 0;
    double end = -1;  // known once all are there
  };
  // Describes where the same ranks meet again and again.
  struct Channel {
    std::vector<int> classes;  // classes of the ranks that take part, each once
    std::int64_t members = 0;
    bool far = false;
    std::vector<Meeting> meetings;
  };
  // Keeps the state of a lane.
  struct Visitor {
    bool waits = false;
    double met_at = 0;
    std::size_t channel = 0;                 // channel where it waits
    std::map<std::size_t, std::size_t> met;  // finished exchanges by channel
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
  std::vector<Visitor> visitors_;  // visitors by lane
  std::vector<Channel> channels_;
  // These are keyed by queue, company and, between two, sender and receiver.
  std::map<std::tuple<std::string, std::size_t, int, int>, std::size_t> numbers_;
  std::unordered_map<const std::vector<int>*, std::size_t> company_by_group_;
  std::map<std::vector<int>, std::size_t> companies_;
};

}  // namespace prun
