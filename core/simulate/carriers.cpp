#include "simulate/carriers.hpp"

#include <algorithm>

namespace prun {

Carriers::Carriers(const RankClasses& ranks, CallCosts& costs, const Host& host)
    : ranks_(ranks), host_(host), host_bytes_(ranks.count()) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) add_links(rank, costs);
  if (host.bandwidth > 0 || host.drives > 0 || host.cores > 0) add_hosts();
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
  for (auto& [number, host] : hosts_) {
    if (host_.bandwidth > 0) host.memory = sharing_.add_carrier(host_.bandwidth);
    if (host_.drives > 0) host.drives = sharing_.add_carrier(host_.drives);
    if (host_.cores > 0) host.cores = sharing_.add_carrier(host_.cores);
  }
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
  const double bytes = std::min(host_.bandwidth, cost.host_bytes / cost.seconds);
  const double drives = std::min(host_.drives, cost.drive_bytes / cost.seconds);
  const double cores = std::min(host_.cores, cost.cores);
  const std::int64_t own = host_of(ranks_.first(rank).rank);
  for (const auto& [number, host] : hosts_) {
    const auto alike = host.alike.find(rank);
    if (alike == host.alike.end()) continue;
    const auto times = static_cast<double>(alike->second);
    if (bytes > 0) loads.push_back({host.memory, bytes, times, number == own});
    if (drives > 0) loads.push_back({host.drives, drives, times, number == own});
    if (cores > 0) loads.push_back({host.cores, cores, times, number == own});
  }
  return loads;
}

}  // namespace prun
