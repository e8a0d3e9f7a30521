// Computes how much of a step's predicted time rests on kernels that were not measured as they are.
#pragma once

#include "simulate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

struct Unmeasured {
  double seconds = 0;        // of a step, of the plan with most of them
  int rank = 0;              // a rank of that plan
  std::int64_t kernels = 0;  // shapes that are not in the table
};

Unmeasured unmeasured_of(const Assembly& assembly, const CostTable& costs);

}  // namespace prun
