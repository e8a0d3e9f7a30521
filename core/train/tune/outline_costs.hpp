// Estimates an outline of a plan at the prices of a table: seconds of a step, and bytes of a rank.
#pragma once

#include "plan/make/make_plan.hpp"
#include "simulate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

struct OutlineCosts {
  double computed = 0;     // time of kernels alone, on the queue that computes
  double passes = 0;       // time of forward and backward of all microbatches, with their exchanges
  double rest = 0;         // time of what else the computing queue does in a step
  double beside = 0;       // time of the busiest other queue
  std::int64_t bytes = 0;  // memory of the recipe's device, without what depends on the order of calls
};

// `alive` is the largest number of microbatches whose forward is done and whose backward is not.
OutlineCosts costs_of(const Assembly& written, const PlanOutline& outline, Prices& prices,
                      std::int64_t ranks_of_host, std::int64_t alive);

}  // namespace prun
