// Computes how much of a step's predicted time is based on kernels that were not measured as they are.
#pragma once

#include "estimate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

struct Unmeasured {
  double seconds = 0;        // seconds of a step, of the plan with most of them
  int rank = 0;              // rank of that plan
  std::int64_t kernels = 0;  // number of shapes that are not in the table
};

Unmeasured unmeasured_of(const Assembly& assembly, const CostTable& costs);

}  // namespace prun
