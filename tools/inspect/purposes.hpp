// What memory is for, in the words of reports.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct PurposeBytes {
  std::string name;
  bool stays = false;                  // has a home, which may lie in several ranges
  std::vector<std::int64_t> by_range;  // of the layout

  std::int64_t all() const;
};

// By region, in their order. What ranks keep in parts lies with the optimizer state, and is told apart by
// what it is: parts of parameters and of gradients.
std::vector<PurposeBytes> bytes_by_purpose(const Program& program, const Plan& plan);

}  // namespace prun
