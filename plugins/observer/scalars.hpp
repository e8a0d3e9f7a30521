// Gives a run as numbers by name, under the names that people search for, to viewers of curves.
#pragma once

#include <string>
#include <vector>

#include "prun/observer.hpp"

namespace prun {

struct Scalar {
  std::string tag;
  double value = 0;
};
using Scalars = std::vector<Scalar>;

// Holds what rates are computed from.
struct FlopRates {
  double flops_per_token = 0, peak_flops = 0;
};

Scalars scalars_of(const StepInfo& info, const FlopRates& rates);
Scalars scalars_of(const EvaluationInfo& info);
Scalars scalars_of(const FinishInfo& info);

}  // namespace prun
