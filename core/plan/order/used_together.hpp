// Decides which instances share a collective: those that are consecutive in the order in which parameters are
// used, or gradients are complete. Example: layers 3 and 4 in different chunks of a pipeline are not used one
// after the other, so they do not share a gather.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/order/bundles.hpp"
#include "plan/work.hpp"

namespace prun {

// Is a row of consecutive calls for which parameters are gathered together.
struct GatheredUse {
  Bundle instances;
  std::int64_t calls = 0;
};
using GatheredUses = std::vector<GatheredUse>;
// Returns the instances with a secondary copy of their parameters, in the order of first use.
std::vector<std::int32_t> renewed_in_order(const Plan& plan, const GatheredUses& uses);
GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling);

// Returns bundles of instances whose gradients are summed over the ranks together, in the order in which they
// are complete. A bundle is of one pass; gradients tied to another stage come last.
std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling);

}  // namespace prun
