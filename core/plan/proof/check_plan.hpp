// Proves a plan, whoever made it: nothing of what made it is asked.
#pragma once

#include "plan/base_program.hpp"
#include "plan/plan.hpp"

namespace prun {

// Replays steps over shadow memory, until it repeats: every read finds the value it means, as of the step it
// means, written before on its own queue or across queues behind a wait; no live bytes are overwritten; sums
// begin once; every op of the program with an effect is called.
void check_plan(const Program& program, const Plan& plan);
// One that was made over another: what lasts lies where it does there, and nothing of what stays there is
// written, but by a plan of the same program what both keep in one place.
void check_over(const Program& program, const Plan& plan, const BaseProgram& base_program);

}  // namespace prun
