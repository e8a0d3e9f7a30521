// Holds what the calls of simulated ranks use at the same time: links of each rank, as fast as the fastest
// call that uses them, and memory and cores of each host that a simulated rank is on.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "simulate/alike.hpp"
#include "simulate/call_costs.hpp"
#include "simulate/sharing.hpp"

namespace prun {

class Carriers {
 public:
  // Describes what ranks of a host share: the bytes a second that its memory carries, and that its drives
  // move, and its cores; 0 means any number. `ranks` is as SimulateOptions has it (ranks_of_host).
  struct Host {
    double bandwidth = 0, drives = 0, cores = 0;
    std::int64_t ranks = 0;
  };
  // The classes must outlive it.
  Carriers(const RankClasses& ranks, CallCosts& costs, const Host& host);

  // Lets a call of a simulated rank, for which `lane` stands, go on from `begin`; returns false
  // if it shares nothing with others.
  bool move(std::size_t lane, std::size_t rank, double begin, const CallCost& cost);
  // Returns the lane whose call ends next, and when, or nothing if there is none.
  std::optional<Sharing::Ended> next() { return sharing_.next(); }
  // Returns the host bytes of a rank, in a step.
  double host_bytes(std::size_t rank) const { return host_bytes_[rank]; }

 private:
  struct CarriersOfHost {
    std::size_t memory = 0, drives = 0, cores = 0;
    std::map<std::size_t, std::int64_t> alike;  // number of ranks of each class there
  };

  void add_links(std::size_t rank, CallCosts& costs);
  void add_hosts();
  std::int64_t host_of(int rank) const { return host_.ranks > 0 ? rank / host_.ranks : 0; }
  std::vector<Sharing::Load> loads_of(std::size_t rank, const CallCost& cost) const;

  const RankClasses& ranks_;
  const Host host_;
  Sharing sharing_;
  std::map<std::pair<std::size_t, std::int32_t>, std::size_t> links_;  // links by rank and number
  std::map<std::int64_t, CarriersOfHost> hosts_;
  std::vector<double> host_bytes_;
};

}  // namespace prun
