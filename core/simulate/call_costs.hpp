// Computes what calls take alone, the bytes that they move, and the cores that they compute on.
#pragma once

#include <functional>
#include <map>
#include <tuple>

#include "simulate/prices.hpp"
#include "simulate/simulated_rank.hpp"

namespace prun {

struct CallCost {
  double seconds = 0, host_bytes = 0, drive_bytes = 0;
  double cores = 0;                      // cores that ranks of a host share
  std::map<std::int32_t, double> links;  // bytes by link
};

class CallCosts {
 public:
  using CoresOf = std::function<double(const QueueInfo&)>;

  // `overhead` is what the executor adds to each, in seconds. `cores_of` is as SimulateOptions has it.
  CallCosts(Prices& prices, double overhead, CoresOf cores_of)
      : prices_(prices), overhead_(overhead), cores_of_(std::move(cores_of)) {}

  // Returns the cost of a call that does not communicate; the reference stays valid.
  const CallCost& of(const SimulatedRank& rank, const Call& call);

 private:
  Prices& prices_;
  const double overhead_;
  const CoresOf cores_of_;
  // Costs are the same for every instance and microbatch: they are kept by plan, function and piece.
  std::map<std::tuple<const Plan*, std::int32_t, std::int32_t>, CallCost> costs_;
};

}  // namespace prun
