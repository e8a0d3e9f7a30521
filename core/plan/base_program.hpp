// Puts two programs over one memory: the plan of one is made over that of the other.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Another program's plan is made over this host plan: persistent values have the places that they have here,
// by segment and name, and the rest reuses memory where this plan keeps nothing between steps. Steps of one
// run while none of the other does.
struct BaseProgram {
  const Program& program;
  const Plan& plan;

  // Says whether the program over it is the same, for a step of other microbatches: what the host and the
  // step exchange lies there as well, and what a save reads is read as the plan beneath says.
  bool is_of(const Program& above) const { return &program == &above; }
};
// Gives a plan as much memory as one that was made over it.
void make_room(Plan& plan, const Plan& above);

}  // namespace prun
