// Names what memory is for, in the words of reports.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct PurposeBytes {
  std::string name;
  bool stays = false;                  // says that it has a home, which may lie in several ranges
  std::vector<std::int64_t> by_range;  // by range of the layout

  std::int64_t all() const;
};

// Returns bytes by region, in their order. Tensors that ranks keep in parts are stored with the optimizer
// state, and are listed separately: parts of parameters and of gradients.
std::vector<PurposeBytes> bytes_by_purpose(const Program& program, const Plan& plan);

}  // namespace prun
