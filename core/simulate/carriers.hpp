// Holds what the calls of simulated ranks move their bytes through at the same time: links of each rank, as
// fast as the fastest call that uses them, and the memory of each host that a simulated rank is on.
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
  // `bandwidth` is the bytes a second that the memory of a host carries; 0 means any number. `ranks_of_host`
  // is as SimulateOptions has it. The classes must outlive it.
  Carriers(const RankClasses& ranks, CallCosts& costs, double bandwidth, std::int64_t ranks_of_host);

  // Lets a call of a simulated rank, for which `lane` stands, move its bytes from `begin` on; returns false
  // if it shares nothing with others.
  bool move(std::size_t lane, std::size_t rank, double begin, const CallCost& cost);
  // Returns the lane whose call ends next, and when, or nothing if there is none.
  std::optional<Sharing::Ended> next() { return sharing_.next(); }
  // Returns the host bytes of a rank, in a step.
  double host_bytes(std::size_t rank) const { return host_bytes_[rank]; }

 private:
  struct Host {
    std::size_t carrier = 0;
    std::map<std::size_t, std::int64_t> alike;  // number of ranks of each class there
  };

  void add_links(std::size_t rank, CallCosts& costs);
  void add_hosts();
  std::int64_t host_of(int rank) const { return ranks_of_host_ > 0 ? rank / ranks_of_host_ : 0; }
  std::vector<Sharing::Load> loads_of(std::size_t rank, const CallCost& cost) const;

  const RankClasses& ranks_;
  const double bandwidth_;
  const std::int64_t ranks_of_host_;
  Sharing sharing_;
  std::map<std::pair<std::size_t, std::int32_t>, std::size_t> links_;  // links by rank and number
  std::map<std::int64_t, Host> hosts_;
  std::vector<double> host_bytes_;
};

}  // namespace prun
