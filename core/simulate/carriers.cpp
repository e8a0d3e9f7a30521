#include "simulate/carriers.hpp"

#include <algorithm>

namespace prun {

Carriers::Carriers(const RankClasses& ranks, CallCosts& costs, double bandwidth, std::int64_t ranks_of_host)
    : ranks_(ranks), bandwidth_(bandwidth), ranks_of_host_(ranks_of_host), host_bytes_(ranks.count()) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) add_links(rank, costs);
  if (bandwidth > 0) add_hosts();
}

void Carriers::add_links(std::size_t rank, CallCosts& costs) {
  const SimulatedRank& of = ranks_.first(rank);
  std::map<std::int32_t, double> fastest;
  for (const Call& call : of.plan->calls) {
    if (of.groups[call.queue]) continue;
    const CallCost& cost = costs.of(of, call);
    host_bytes_[rank] += cost.host_bytes;
    for (const auto& [link, bytes] : cost.links)
      if (cost.seconds > 0) fastest[link] = std::max(fastest[link], bytes / cost.seconds);
  }
  for (const auto& [link, rate] : fastest) links_[{rank, link}] = sharing_.add_carrier(rate);
}

void Carriers::add_hosts() {
  for (std::size_t rank = 0; rank < ranks_.count(); ++rank) hosts_[host_of(ranks_.first(rank).rank)];
  for (auto& [number, host] : hosts_) host.carrier = sharing_.add_carrier(bandwidth_);
  for (const SimulatedRank& rank : ranks_.ranks())
    if (const auto host = hosts_.find(host_of(rank.rank)); host != hosts_.end())
      ++host->second.alike[static_cast<std::size_t>(ranks_.class_of(rank.rank))];
}

bool Carriers::move(std::size_t lane, std::size_t rank, double begin, const CallCost& cost) {
  std::vector<Sharing::Load> loads = loads_of(rank, cost);
  if (loads.empty()) return false;
  sharing_.begin(lane, begin, cost.seconds, std::move(loads));
  return true;
}

std::vector<Sharing::Load> Carriers::loads_of(std::size_t rank, const CallCost& cost) const {
  std::vector<Sharing::Load> loads;
  if (cost.seconds <= 0) return loads;
  for (const auto& [link, bytes] : cost.links)
    if (const auto found = links_.find({rank, link}); found != links_.end() && bytes > 0)
      loads.push_back({found->second, bytes / cost.seconds});
  const double asked = std::min(bandwidth_, cost.host_bytes / cost.seconds);
  const std::int64_t own = host_of(ranks_.first(rank).rank);
  for (const auto& [number, host] : hosts_)
    if (const auto alike = host.alike.find(rank); asked > 0 && alike != host.alike.end())
      loads.push_back({host.carrier, asked, static_cast<double>(alike->second), number == own});
  return loads;
}

}  // namespace prun
