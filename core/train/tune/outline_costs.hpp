// Estimates an outline of a plan at the prices of a table: seconds of a step, and bytes of a rank.
#pragma once

#include "plan/make/make_plan.hpp"
#include "simulate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

struct OutlineCosts {
  double computed = 0;     // by the queue that computes, kernels alone
  double passes = 0;       // forward and backward of all microbatches, with the exchanges within them
  double rest = 0;         // what else the computing queue does in a step
  double beside = 0;       // of the busiest other queue
  std::int64_t bytes = 0;  // in memory of the recipe's device, without what only the order of calls tells
};

// `alive`: microbatches whose forward is done and whose backward is not, at most.
OutlineCosts costs_of(const Assembly& written, const PlanOutline& outline, Prices& prices,
                      std::int64_t ranks_of_host, std::int64_t alive);

}  // namespace prun
