// Proves a plan, whatever made it: the proof uses nothing of the planner.
#pragma once

#include "plan/base_program.hpp"
#include "plan/plan.hpp"

namespace prun {

// Replays steps over shadow memory, until it repeats: every read finds the value it means, as of the step it
// means, written before on its own queue or across queues behind a wait; no live bytes are overwritten; sums
// begin once; every op of the program with an effect is called.
void check_plan(const Program& program, const Plan& plan);
// Proves a plan that was made over another: what lasts lies where it does there, and nothing of what stays
// there is written, except by a plan of the same program in values that both keep in one place.
void check_over(const Program& program, const Plan& plan, const BaseProgram& base_program);

}  // namespace prun
