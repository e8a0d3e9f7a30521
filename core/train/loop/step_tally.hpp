// Holds what ops have counted in a step, as observers are told it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prun {

// Holds a tally (ProgramApi::tally), layer by layer.
struct StepTally {
  std::string name;
  std::int64_t layers = 0;
  std::vector<double> numbers;
  bool bounds = false;  // numbers are, by layer, what was needed and what was planned for
};

}  // namespace prun
