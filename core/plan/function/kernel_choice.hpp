// The kernel of a device that runs an op on the parts that a rank has.
#pragma once

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// A kernel takes the extents of one operand for those of others: what the rule says of whole values must be
// so of the parts that a rank has, unless it goes by numbers that are of the whole. Throws an Error where it
// is not.
void check_parts_agree(const Program& program, const Op& op, const OpShape& parts);

// Sets the step's kernel; returns the bytes of its workspace. Throws an Error where the device has none.
std::int64_t choose_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, PlannedStep& step);

}  // namespace prun
