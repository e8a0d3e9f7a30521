// Adds losses of a training step by groups of targets, such as those of a data set or of a role of
// conversations.
#pragma once

#include <cstdint>

#include "program/step_program.hpp"

namespace prun {

// These name the input that says which group each target is of, and the sum by group, [1, groups, 2], beside
// that of all.
inline constexpr const char* groups_input = "groups";
inline constexpr const char* group_sums = "step.losses";

// Declares the groups; it is called before add_step().
void declare_loss_groups(Program& program, std::int64_t groups);

// Has every op that adds to the loss add to the sums as well. It is called once the model's heads stand in
// the ops of their split form, before placement. Throws unsupported where an op adds to the loss that has no
// such form.
void sum_loss_by_group(Program& program);

}  // namespace prun
