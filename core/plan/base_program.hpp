// Plans one program over the memory of another. Example: evaluation. Its plan has parameters at the addresses
// of the training plan, and its activations reuse the memory where training keeps nothing between two steps.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Persistent values have the places of this plan, found by segment and name; the rest reuses memory where
// this plan keeps nothing between steps. Steps of one program run while none of the other does.
struct BaseProgram {
  const Program& program;
  const Plan& plan;

  // Returns true if `above` is the same program for another number of microbatches. It then has the same
  // staging memory, and saves read the base plan's values.
  bool is_of(const Program& above) const { return &program == &above; }
};
// Enlarges a plan to the memory of one that was made over it.
void make_room(Plan& plan, const Plan& above);

}  // namespace prun
