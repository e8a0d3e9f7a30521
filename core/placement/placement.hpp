// Turns "dimension d is split over axis a" into a placement for every value, and inserts the collectives that
// follow.
//
// It goes axis by axis, and op by op in the order of a step. On an axis an op is split along at most one
// dimension: one that the op prefers, otherwise the first requested one that an operand is sharded on and
// that the op's rule does not need whole. Operands with that dimension must be sharded on it, others
// replicated. Results with it are sharded; results that sum over it are partial sums (or partial maxima).
// Linear ops pass partial sums on, monotone ops maxima. If a value has another placement than an op needs,
// the collective that changes it is inserted before the op; a gradient is summed in function `reduce`. A
// split for ops only (SplitScope::ops) applies where the other split's dimension is needed whole, and ends at
// the next op. Example, `tp = 2`, split `ffn`: up projection [ffn, hidden] and activation are sharded on ffn.
// The down projection sums over ffn, so its result is partial. The residual that is added to it is
// replicated: an all-reduce is inserted before the add.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Needs the mesh and the splits. Throws an Error that names what cannot be divided or communicated.
void place_on_mesh(Program& program);

}  // namespace prun
