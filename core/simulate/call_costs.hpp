// Computes what calls take alone, and the bytes that they move.
#pragma once

#include <map>
#include <tuple>

#include "simulate/prices.hpp"
#include "simulate/simulated_rank.hpp"

namespace prun {

struct CallCost {
  double seconds = 0, host_bytes = 0;
  std::map<std::int32_t, double> links;  // bytes by link
};

class CallCosts {
 public:
  // `overhead` is what the executor adds to each, in seconds.
  CallCosts(Prices& prices, double overhead) : prices_(prices), overhead_(overhead) {}

  // Returns the cost of a call that does not communicate; the reference stays valid.
  const CallCost& of(const SimulatedRank& rank, const Call& call);

 private:
  Prices& prices_;
  const double overhead_;
  // Costs are the same for every instance and microbatch: they are kept by plan, function and piece.
  std::map<std::tuple<const Plan*, std::int32_t, std::int32_t>, CallCost> costs_;
};

}  // namespace prun
