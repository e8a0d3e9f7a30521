// Decides where values lie that outlive the function that writes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/base_program.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

struct PlacedHomes {
  Homes around;                    // for values that lie side by side with others, the range of all of them
  std::vector<RegionBytes> sizes;  // listed by segment
};

// Fills plan.homes, and adds the ranges that they lie in. `first_instance`: of each segment. `base_program`:
// what the plan is made over; null: nothing. Throws an Error naming a value that cannot lie where it is to.
// Functions are planned as if parameters of all delays lay here; those that are older than any pass here
// reads have no home once they are.
void forget_older_versions(const Program& program, Plan& plan);

PlacedHomes place_homes(const Program& program, const Lowering& lowering, const BaseProgram* base_program,
                        std::span<const std::int32_t> first_instance, Plan& plan);

}  // namespace prun
