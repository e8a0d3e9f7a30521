// Makes the charts of runs, over each other: what each step logs, what ops have counted, and evaluations.
#pragma once

#include <vector>

#include "report/chart.hpp"
#include "report/looked_run.hpp"

namespace prun {

// Returns the charts that have a number of some run.
std::vector<Chart> charts_of(const std::vector<Looked>& runs);

}  // namespace prun
