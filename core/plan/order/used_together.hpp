// Decides which instances share a collective: consecutive in the order in which parameters are used, or
// gradients are complete. Example: with `pp`, layers 3 and 4 on different chunks are not used consecutively,
// so they do not share a gather.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/order/bundles.hpp"
#include "plan/work.hpp"

namespace prun {

// Holds consecutive calls for which parameters are gathered together.
struct GatheredUse {
  Bundle instances;
  std::int64_t calls = 0;
};
using GatheredUses = std::vector<GatheredUse>;
// Returns instances whose parameters have a copy, in the order in which they are first used.
std::vector<std::int32_t> renewed_in_order(const Plan& plan, const GatheredUses& uses);
GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling);

// Returns instances whose gradients are summed over the ranks together, in the order in which they are
// complete: within a pass, and tied ones last.
std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling);

}  // namespace prun
