// Proves a plan without using anything of the planner: every read finds the value, microbatch and version
// that the program means. Example: two calls that share scratch without a wait between them: the second write
// is refused, since a reader of the first may still run.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------------- check plan

// Replays steps until the state repeats. Every read must find its value of the right step, written earlier in
// the same queue or before a wait; no live bytes may be overwritten; sums must begin once; every op with an
// effect must be called.
void check_plan(const Program& program, const Plan& plan);
// Proves a plan over another: persistent values have the same place, and nothing else that persists is
// written, except by a plan of the same program in values that both share.
void check_over(const Program& program, const Plan& plan, const BaseProgram& base_program);

// ------------------------------------------------------------------- check lists
// Checks that collectives which a comm plugin gets in one list use separate memory: it may run them
// concurrently. Example: an all-gather into the bytes that an all-reduce in the same list still reads is
// refused.

// Throws an internal Error that names both.
void check_lists(const Program& program, const Plan& plan);

}  // namespace prun
