// Two programs over one memory: the plan of one is made over that of the other.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// What another program's plan is made over: what lasts has the places that it has here, by segment and name
// of the value, and the rest lies where this plan has nothing that stays. The steps of one run while none of
// the other does.
struct Beneath {
  const Program& program;
  const Plan& plan;
};
// Lets a plan have as much memory as one that was made over it.
void make_room(Plan& plan, const Plan& above);

}  // namespace prun
