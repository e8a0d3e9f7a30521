// Puts into memory what it holds before the first step.
#pragma once

#include "plan/plan.hpp"
#include "plan/proof/content_versions.hpp"
#include "plan/proof/shadow_memory.hpp"

namespace prun {

// Puts this content: parameters and optimizer state exist before step one, and memory that has not been
// written is zero, as padding must be; both sides of the staging area are the host's.
void put_initial_content(const Program& program, const Plan& plan, const ContentVersions& versions,
                         ShadowMemory& memory);

}  // namespace prun
