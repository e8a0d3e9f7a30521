// Chooses the kernel of a device that runs an op on the parts that a rank has.
#pragma once

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// Checks the parts: a kernel takes the extents of one operand for those of others, so what the rule says of
// whole values must hold for the parts that a rank has, unless it depends on numbers that belong to the
// whole. Throws an Error where it does not hold.
void check_parts_agree(const Program& program, const Op& op, const OpShape& parts);

// Sets the step's kernel; returns the bytes of its workspace. Throws an Error if the device has none.
std::int64_t choose_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, PlannedStep& step);

}  // namespace prun
